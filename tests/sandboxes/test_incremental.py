"""Snapshots cost what changed: files of the lower layer are not read again, and no trick makes a stale one pass."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from artifacts.store import DirectoryStore
from sandboxes import snapshot
from sandboxes.bubblewrap import BubblewrapBackend, BubblewrapSandbox
from sandboxes.capture import capture, now_ns, store
from sandboxes.manifest import WHOLE_BYTES, load
from sandboxes.restore import restore
from sandboxes.sandbox import Backend, SandboxSpec

FILES = {"a/x": b"x" * 9000, "b/x": b"y" * 9000, "small": b"s", "big": bytes(100_000)}


def forked(backend: Backend, name: str) -> BubblewrapSandbox:
    """A sandbox over a lower layer that was written before it, by the clock of its inodes."""
    assert isinstance(backend, BubblewrapBackend)
    backend.acquire(SandboxSpec(workspace=name)).close()
    written = now_ns()
    while now_ns() == written:
        pass
    return backend.acquire(SandboxSpec(workspace=name))


def test_what_did_not_change_is_not_read(bubblewrap: Backend, artifacts: DirectoryStore) -> None:
    taken = snapshot.store_files(FILES, artifacts)
    sandbox = forked(bubblewrap, taken)
    assert sandbox.snapshot() == taken
    assert sandbox.read_bytes == 0
    sandbox.exec(["sh", "-c", "printf new > new; rm small; cat big a/x > /dev/null; mv b/x b/z"])
    wanted = {"a/x": FILES["a/x"], "b/z": FILES["b/x"], "big": FILES["big"], "new": b"new"}
    assert sandbox.snapshot() == snapshot.snapshot_digest_of(wanted)
    assert sandbox.read_bytes == 9003
    sandbox.close()


@pytest.mark.parametrize("trick", [
    "mv a c && mv b a && mv c b",
    "cp -p b/x t && touch -r a/x t && mv t a/x",
    "python3 -c \"import os; s=os.stat('a/x'); open('a/x','r+b').write(b'y'*9000); "
    "os.utime('a/x', ns=(s.st_atime_ns, s.st_mtime_ns))\"",
    "rm a/x && ln b/x a/x",
])
def test_a_changed_file_is_never_taken_for_the_lower_layers(
        trick: str, bubblewrap: Backend, artifacts: DirectoryStore) -> None:
    sandbox = forked(bubblewrap, snapshot.store_files(FILES, artifacts))
    assert sandbox.exec(["sh", "-c", trick]).exit_code == 0
    now = sandbox.snapshot()
    assert snapshot.read_file(artifacts, now, "a/x") == FILES["b/x"]
    sandbox.close()


def test_writes_through_a_mapping_are_seen_by_the_next_snapshot(
        bubblewrap: Backend, artifacts: DirectoryStore) -> None:
    sandbox = forked(bubblewrap, snapshot.store_files(FILES, artifacts))
    session = sandbox.session("python")
    session.run("import mmap; f=open('a/x','r+b'); m=mmap.mmap(f.fileno(), 0); m[0]=1")
    before = sandbox.snapshot()
    session.run("m[1] = 2")
    assert sandbox.snapshot() != before
    assert snapshot.read_file(artifacts, sandbox.snapshot(), "a/x")[:3] == b"\x01\x02x"
    sandbox.close()


def test_content_that_the_store_does_not_have_is_read_and_stored(
        bubblewrap: Backend, artifacts: DirectoryStore) -> None:
    spec = SandboxSpec(files={"big": b"z" * 50_000})
    bubblewrap.acquire(spec).close()
    written = now_ns()
    while now_ns() == written:
        pass
    sandbox = bubblewrap.acquire(spec)
    assert snapshot.read_file(artifacts, sandbox.snapshot(), "big") == spec.files["big"]
    sandbox.close()


def test_one_snapshot_is_forked_into_many_sandboxes(bubblewrap: Backend, artifacts: DirectoryStore) -> None:
    taken = snapshot.store_files(FILES, artifacts)
    many = [bubblewrap.acquire(SandboxSpec(workspace=taken)) for _ in range(8)]
    assert len({one.lower.path for one in many}) == 1  # type: ignore[attr-defined]
    for number, one in enumerate(many):
        one.write("small", str(number).encode())
    assert len({one.snapshot() for one in many}) == 8
    for one in many:
        one.close()
    fresh = bubblewrap.acquire(SandboxSpec(workspace=taken))
    assert fresh.snapshot() == taken
    fresh.close()


def test_ten_thousand_files_come_and_go(bubblewrap: Backend) -> None:
    first = bubblewrap.acquire(SandboxSpec())
    make = "import os\nfor n in range(10_000):\n os.makedirs(f'd{n % 100}', exist_ok=True)\n" \
           " open(f'd{n % 100}/f{n}', 'w').write(str(n))"
    assert first.exec(["python3", "-c", make]).exit_code == 0
    taken = first.snapshot()
    first.close()
    second = forked(bubblewrap, taken)
    assert second.snapshot() == taken
    assert second.read_bytes == 0
    second.close()


def test_a_gigabyte_is_never_in_memory_and_holes_stay_holes(tmp_path: Path, artifacts: DirectoryStore) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    size = 1 << 30
    with (folder / "big").open("wb") as file:
        file.write(b"head")
        file.truncate(size - 4)
        file.seek(size - 4)
        file.write(b"tail")
    root = os.open(folder, os.O_RDONLY)
    tracemalloc.start()
    taken = store(capture(root, artifacts), artifacts)
    back = tmp_path / "back"
    restore(load(taken, artifacts), artifacts.get, back)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    os.close(root)
    assert peak < 80 << 20
    found = (back / "big").stat()
    assert (found.st_size, found.st_blocks * 512 < 64 << 20) == (size, True)
    assert [(one.path, one.kind, one.size) for one in snapshot.list_files(artifacts, taken)] == [("big", "f", size)]
    root = os.open(back, os.O_RDONLY)
    assert capture(root, artifacts).manifest == artifacts.get(taken)
    os.close(root)


def test_a_large_file_has_one_digest_however_it_came(tmp_path: Path, artifacts: DirectoryStore) -> None:
    data = bytes(WHOLE_BYTES) + b"more"
    (tmp_path / "work").mkdir(mode=0o755)
    (tmp_path / "work").chmod(0o755)
    (tmp_path / "work" / "f").write_bytes(data)
    (tmp_path / "work" / "f").chmod(0o644)
    root = os.open(tmp_path / "work", os.O_RDONLY)
    taken = store(capture(root, artifacts), artifacts)
    os.close(root)
    assert taken == snapshot.snapshot_digest_of({"f": data})
    assert snapshot.read_file(artifacts, taken, "f", limit_bytes=1 << 30) == data
