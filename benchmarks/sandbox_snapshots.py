"""What snapshots cost: restored, forked, taken again, beside `cp -r` and `tar x`; many files, one large file.

    python benchmarks/sandbox_snapshots.py [--quick] [--seed S]

Processor time is told beside the time: on a busy machine only that is steady.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from harness import Memory, answer, parser, quantile, ratio, scratch

from artifacts import open_store
from artifacts.store import ArtifactStore
from sandboxes import open_backend, snapshot
from sandboxes.capture import Captured, capture, store
from sandboxes.manifest import load
from sandboxes.restore import restore
from sandboxes.sandbox import Backend, Sandbox, SandboxSpec
from schemas.settings import Settings

FILES, WHOLE_BYTES = 200, 6000
"""Of every two files one is small enough for the manifest."""
MANY = 100_000


def main() -> int:
    options = parser(__doc__).parse_args()
    rng = random.Random(options.seed)
    with scratch() as home:
        settings = Settings(home=str(Path(home) / "home"))
        artifacts = open_store(settings)
        backend = open_backend(settings, artifacts)
        try:
            held = measure(backend, artifacts, Path(home), rng, 5 if options.quick else 30)
        finally:
            backend.close()
        held += many(artifacts, Path(home), MANY // 10 if options.quick else MANY)
        held += large(artifacts, Path(home), rng, 1 << (27 if options.quick else 30))
    return 0 if all(held) else 1


class Taken(NamedTuple):
    ms: float
    processor_ms: float


def timed(action: Callable[[], object]) -> Taken:
    def now() -> float:
        return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))

    started, before = time.perf_counter(), now()
    action()
    return Taken((time.perf_counter() - started) * 1000, (now() - before) * 1000)


def measure(backend: Backend, artifacts: ArtifactStore, home: Path, rng: random.Random, rounds: int) -> list[bool]:
    found: dict[str, list[Taken]] = {}
    for number in range(rounds):
        files = {f"d{n % 10}/f{n}": rng.randbytes(WHOLE_BYTES if n % 2 else WHOLE_BYTES // 10) for n in range(FILES)}
        for name, action in one_round(backend, artifacts, home / str(number), files).items():
            found.setdefault(name, []).append(timed(action))
    middle = {name: Taken(*(quantile([one[part] for one in values], 0.5) for part in (0, 1)))
              for name, values in found.items()}

    def told(question: str, name: str, target: str | None = None) -> bool:
        against = f"processor time {middle[name].processor_ms:.1f} ms"
        return answer(f"{question}, p50", middle[name].ms, "ms", target, against, rounds)

    def beside(command: str, name: str) -> bool:
        value = ratio([one.ms for one in found["unpack"]], [one.ms for one in found[name]])
        against = f"{command}: p50 {middle[name].ms:.1f} ms, processor time {middle[name].processor_ms:.1f} ms"
        return answer(f"unpacking to disk against {command} of the same files", value, "x", None, against, rounds)

    return [
        told("restore of a 200-file snapshot seen for the first time: a sandbox over it", "first", "<= 15"),
        told("another sandbox over the same snapshot", "fork"),
        told("snapshot of its 200 unchanged files", "unchanged"),
        told("snapshot after one file has changed", "changed"),
        told("unpacking its 200 files to disk alone", "unpack"),
        beside("cp -r", "cp"), beside("tar x", "tar")]


def one_round(backend: Backend, artifacts: ArtifactStore, here: Path,
              files: dict[str, bytes]) -> dict[str, Callable[[], object]]:
    """The actions of a round, in their order."""
    here.mkdir()
    name = snapshot.store_files(files, artifacts)
    spec = SandboxSpec(workspace=name)
    sandboxes: list[Sandbox] = []
    restore(load(name, artifacts), artifacts.get, here / "tree")
    subprocess.run(["tar", "cf", here / "tree.tar", "-C", here / "tree", "."], check=True)
    (here / "untar").mkdir()

    def again() -> None:
        assert sandboxes[-1].snapshot() == name

    def changed() -> None:
        sandboxes[-1].write("d1/f1", b"changed")
        assert sandboxes[-1].snapshot() != name

    def close() -> None:
        for one in sandboxes:
            one.close()

    return {"first": lambda: sandboxes.append(backend.acquire(spec)),
            "fork": lambda: sandboxes.append(backend.acquire(spec)), "unchanged": again, "changed": changed,
            "close": close,
            "unpack": lambda: restore(load(name, artifacts), artifacts.get, here / "back"),
            "cp": lambda: subprocess.run(["cp", "-r", here / "tree", here / "copy"], check=True),
            "tar": lambda: subprocess.run(["tar", "xf", here / "tree.tar", "-C", here / "untar"], check=True)}


def many(artifacts: ArtifactStore, home: Path, count: int) -> list[bool]:
    """Small files, and no sandbox: what is bounded by the disk of a workspace there is bounded by nothing here."""
    tree = home / "many"
    for number in range(count):
        if number % 100 == 0:
            (tree / f"{number // 100}").mkdir(parents=True)
        (tree / f"{number // 100}" / f"{number}").write_bytes(b"%d\n" % number * 20)
    return there_and_back(artifacts, tree, f"{count:,} small files", None)


def large(artifacts: ArtifactStore, home: Path, rng: random.Random, size: int) -> list[bool]:
    """One file full of noise, one full of nothing."""
    held = []
    for kind in ("full", "sparse"):
        tree = home / kind
        tree.mkdir()
        with (tree / "file").open("wb") as file:
            for _ in range(size >> 20 if kind == "full" else 0):
                file.write(rng.randbytes(1 << 20))
            file.truncate(size)
        held += there_and_back(artifacts, tree, f"a {kind} file of {size >> 20} MiB", "<= 80")
    return held


def there_and_back(artifacts: ArtifactStore, tree: Path, name: str, memory_target: str | None) -> list[bool]:
    taken: list[Captured] = []
    back = tree.with_name("back")
    memory = Memory(0.05)
    first = timed(lambda: taken.append(take(tree, artifacts)))
    written = timed(lambda: restore(load(taken[0].digest, artifacts), artifacts.get, back))
    samples = memory.stop()
    assert take(back, artifacts).digest == taken[0].digest
    for folder in (tree, back):
        shutil.rmtree(folder)
    return [
        answer(f"snapshot of {name}", first.ms / 1000, "s", None, f"processor time {first.processor_ms / 1000:.2f} s"),
        answer(f"restore of {name}", written.ms / 1000, "s", None,
               f"processor time {written.processor_ms / 1000:.2f} s"),
        answer(f"memory for both, {name}", max(samples) - samples[0], "MiB", memory_target)]


def take(folder: Path, artifacts: ArtifactStore) -> Captured:
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        found = capture(root, artifacts)
    finally:
        os.close(root)
    store(found, artifacts)
    return found


if __name__ == "__main__":
    sys.exit(main())
