"""The cache of verdicts tells the truth or nothing: damaged, full, read-only, shared by processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from schemas.events import ArtifactRef
from tasks.task import Task
from tests.conftest import REPOSITORY
from tests.verifiers.rig import Rig
from verifiers.judges import Judges
from verifiers.scoring import Request
from verifiers.verdicts import Verdict, Verdicts, key_of

KEYS = [key_of(f"sha256:{number}", "sha256:v", 0, True) for number in range(20)]
TASK = Task(task_id="t", kind="tools", set="s", prompt="p", hidden={"family": "calc", "out": "out.txt", "want": "42"})


def verdict(number: int) -> Verdict:
    evidence = ArtifactRef(f"sha256:{number:064}", 7)
    return Verdict(reward=number / 32, components={"part": number / 64}, evidence=evidence)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "verdicts.db"
    cache = Verdicts(path)
    for number, key in enumerate(KEYS):
        cache.put(key, verdict(number))
    cache.close()
    yield path


def told(path: Path) -> list[Verdict | None]:
    cache = Verdicts(path)
    found = [cache.get(key) for key in KEYS]
    cache.close()
    return found


def test_it_remembers(path: Path) -> None:
    assert told(path) == [verdict(number) for number in range(len(KEYS))]


def test_a_flipped_byte_anywhere_is_told_as_nothing_or_as_before(path: Path, tmp_path: Path) -> None:
    sound = path.read_bytes()
    lost = 0
    for place in range(16, len(sound), 37):
        damaged = bytearray(sound)
        damaged[place] ^= 0x21
        copy = tmp_path / f"{place}.db"
        copy.write_bytes(damaged)
        for number, found in enumerate(told(copy)):
            assert found in (None, verdict(number)), place
            lost += found is None
    assert lost, "some of the damage was to verdicts"


def test_a_verdict_under_anothers_key_is_none(path: Path) -> None:
    import apsw

    connection = apsw.Connection(str(path))
    connection.execute("update verdicts set verdict = (select verdict from verdicts where key = ?)", (KEYS[3],))
    connection.execute("insert or replace into verdicts values (?, 'text')", (KEYS[4],))
    connection.close()
    assert told(path) == [verdict(3) if number == 3 else None for number in range(len(KEYS))]


CROWDED = """
import os, resource, signal, sys
from pathlib import Path
from tests.verifiers.test_verdicts import KEYS, verdict
from verifiers.verdicts import Verdicts

if sys.argv[2] == "full":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
else:
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
cache = Verdicts(Path(sys.argv[1]))
for number, key in enumerate(KEYS):
    cache.put(key, verdict(number + 1))
    assert cache.get(key) in (None, verdict(number))
cache.close()
print("went on")
"""


@pytest.mark.parametrize("how", ["full", "read-only"])
def test_where_nothing_can_be_written_it_knows_less_and_nothing_fails(path: Path, how: str) -> None:
    if how == "read-only":
        if os.geteuid() != 0:
            pytest.skip("only root can become somebody who may not write")
        for folder in path.parents:
            if folder.stat().st_mode & 0o005 != 0o005 and str(folder).startswith("/tmp"):
                folder.chmod(0o755)
    done = subprocess.run([sys.executable, "-c", CROWDED, str(path), how], cwd=REPOSITORY, capture_output=True,
                          text=True)
    assert done.stdout == "went on\n", done.stderr[-2000:]
    assert told(path) == [verdict(number) for number in range(len(KEYS))]


def test_two_consumers_share_it_though_it_is_damaged_under_way(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "home")
    submissions = [rig.hand_in(TASK, {"out.txt": str(41 + number % 2)}, answer=str(number)) for number in range(12)]

    def all_of_them(judges: Judges) -> list[float | None]:
        found = []
        for number, submission in enumerate(submissions):
            if number == 5:
                (Path(rig.settings.home) / "verdicts.db").write_bytes(b"no database" * 1000)
            found.append(judges.score(Request(submission=submission, episode_id="e", run_id="r")).reward)
        return found

    try:
        with (Judges(rig.settings, rig.artifacts) as one, Judges(rig.settings, rig.artifacts) as other,
              ThreadPoolExecutor(2) as pool):
            assert list(pool.map(all_of_them, [one, other])) == [[0.0, 0.5] * 6] * 2
            assert all_of_them(one) == [0.0, 0.5] * 6
    finally:
        rig.close()
