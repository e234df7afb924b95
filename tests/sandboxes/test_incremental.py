"""Snapshots cost what changed: files of the lower layer are not read again, and no trick makes a stale one pass."""

from __future__ import annotations

import os
import signal
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from artifacts.store import DirectoryStore
from sandboxes import snapshot
from sandboxes.bubblewrap import BubblewrapBackend, BubblewrapSandbox
from sandboxes.capture import capture, now_ns, store
from sandboxes.manifest import WHOLE_BYTES, load
from sandboxes.restore import restore
from sandboxes.sandbox import Backend, SandboxSpec
from tests.sandboxes.host import wait_for_end

FILES = {"a/x": b"x" * 9000, "b/x": b"y" * 9000, "small": b"s", "big": bytes(100_000)}


def forked(backend: Backend, name: str) -> BubblewrapSandbox:
    """A sandbox over a lower layer that was written before it, by the clock of its inodes."""
    assert isinstance(backend, BubblewrapBackend)
    backend.acquire(SandboxSpec(workspace=name)).close()
    written = time.time_ns()  # a stamp may be finer than the clock that most stamps are taken from, and ahead of it
    while now_ns() <= written:
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
    written = time.time_ns()  # a stamp may be finer than the clock that most stamps are taken from, and ahead of it
    while now_ns() <= written:
        pass
    sandbox = bubblewrap.acquire(spec)
    assert snapshot.read_file(artifacts, sandbox.snapshot(), "big") == spec.files["big"]
    sandbox.close()


def test_one_snapshot_is_forked_into_many_sandboxes_at_once(bubblewrap: Backend, artifacts: DirectoryStore) -> None:
    taken = snapshot.store_files(FILES, artifacts)
    with ThreadPoolExecutor(20) as pool:
        many = list(pool.map(lambda _: bubblewrap.acquire(SandboxSpec(workspace=taken)), range(20)))
        assert len({one.lower.path for one in many}) == 1  # type: ignore[attr-defined]
        assert set(pool.map(lambda one: one.snapshot(), many)) == {taken}
        for number, one in enumerate(many):
            one.write("small", str(number).encode())
        assert len(set(pool.map(lambda one: one.snapshot(), many))) == 20
        list(pool.map(lambda one: one.close(), many))
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


def test_names_of_one_file_stay_so_when_it_is_written_to(bubblewrap: Backend, artifacts: DirectoryStore) -> None:
    """moby/moby#16813, opencontainers/image-spec#1211: on an overlay the first write made two files of them."""
    if bubblewrap.owner is None:  # type: ignore[attr-defined]
        pytest.skip("the kernel keeps such names together only where the mount is root's")
    first = bubblewrap.acquire(SandboxSpec())
    first.exec(["sh", "-c", "mkdir d && head -c 9000 /dev/zero > a && ln a d/b && ln a c && printf one > x && ln x y"])
    taken = first.snapshot()
    first.close()
    second = forked(bubblewrap, taken)
    assert second.snapshot() == taken and second.read_bytes == 0
    assert second.exec(["sh", "-c", "printf two >> y && cat x && rm a && printf more >> c"]).stdout == b"onetwo"
    third = bubblewrap.acquire(SandboxSpec(workspace=second.snapshot()))
    result = third.exec(["sh", "-c", "stat -c %h x y c d/b; wc -c < d/b; test ! -e a"])
    assert (result.exit_code, result.stdout) == (0, b"2\n2\n2\n2\n9004\n")
    for one in (second, third):
        one.close()


def test_a_file_in_blocks_that_did_not_change_is_not_read(bubblewrap: Backend, artifacts: DirectoryStore) -> None:
    first = bubblewrap.acquire(SandboxSpec())
    assert isinstance(first, BubblewrapSandbox)
    assert first.exec(["sh", "-c", "yes | head -c 70000000 > big && printf s > small"]).exit_code == 0
    taken = first.snapshot()
    assert first.read_bytes == 70_000_001
    first.close()
    second = forked(bubblewrap, taken)
    second.write("small", b"t")
    assert second.snapshot() != taken
    assert second.read_bytes == 1
    second.close()


def test_attributes_of_files_that_did_not_change_are_kept(bubblewrap: Backend, artifacts: DirectoryStore) -> None:
    first = bubblewrap.acquire(SandboxSpec(files=FILES))
    code = "import os\nfor p in ('a', 'a/x', 'small'): os.setxattr(p, 'user.of', p.encode())"
    if (result := first.exec(["python3", "-c", code])).exit_code:
        pytest.skip(f"no attributes in a sandbox: {result.stderr!r}")
    taken = first.snapshot()
    first.close()
    assert taken != snapshot.snapshot_digest_of(FILES)
    second = forked(bubblewrap, taken)
    assert not second.lost and second.snapshot() == taken and second.read_bytes == 0
    second.exec(["python3", "-c", "import os; os.removexattr('a/x', 'user.of')"])
    found = load(second.snapshot(), artifacts).attributes
    assert [(one.path, one.value) for one in found] == [(b"a", b"a"), (b"small", b"small")]
    assert second.read_bytes == 9000
    second.close()


def test_a_workspace_that_does_not_fit_into_memory_is_unpacked_on_disk(
        bubblewrap: BubblewrapBackend, artifacts: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = bubblewrap.lowers.shelf
    spec = SandboxSpec(files={**FILES, "full": b"x" * 100_000})
    monkeypatch.setattr("sandboxes.lower.SHELVED_BYTES", 100_000)
    sandbox = bubblewrap.acquire(spec)
    assert sandbox.lower.shelf is None and not (shelf.path / sandbox.initial.removeprefix("sha256:")).exists()
    assert sandbox.snapshot() == sandbox.initial
    sandbox.close()
    monkeypatch.undo()
    with (shelf.path / "full").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, os.statvfs(shelf.path).f_bavail * 4096 - (64 << 10))
    files = {**spec.files, "other": b"o"}
    crowded = bubblewrap.acquire(SandboxSpec(files=files))
    assert crowded.lower.shelf is None and crowded.snapshot() == snapshot.snapshot_digest_of(files)
    crowded.close()


def test_what_was_in_the_memory_of_a_helper_that_died_is_unpacked_again(
        bubblewrap: BubblewrapBackend, artifacts: DirectoryStore) -> None:
    spec = SandboxSpec(workspace=snapshot.store_files(FILES, artifacts))
    before = bubblewrap.acquire(spec)
    pid = bubblewrap.spawner_pid
    os.kill(pid, signal.SIGKILL)
    wait_for_end([pid])
    after = bubblewrap.acquire(spec)
    assert before.lower.path != after.lower.path and after.snapshot() == spec.workspace
    before.close()
    after.close()
    again = bubblewrap.acquire(spec)
    assert again.lower is after.lower and again.snapshot() == spec.workspace
    again.close()
