"""Hostile and moving workspaces: a snapshot of them ends, is bounded, and says what it left out."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from artifacts.store import DirectoryStore
from sandboxes import capture, reading, snapshot
from sandboxes.manifest import INLINE_BYTES, MAX_DEPTH, Attribute, Entry, encode, load, manifest_of
from sandboxes.sandbox import Backend, SandboxSpec
from schemas.errors import ArtifactStorageError, SandboxError
from schemas.events import ArtifactRef
from tests.sandboxes.trees import ROOT, captured, restored, taken

LARGE = 1 << 20
"""From here on content is stored as soon as it is read, and not when a batch is full."""


class Meddling(DirectoryStore):
    """Something happens in the workspace whenever content was read."""

    def __init__(self, root: Path, then: Callable[[], object]) -> None:
        super().__init__(root)
        self.then = then

    def put(self, data: bytes, media_type: str = "application/octet-stream") -> ArtifactRef:
        self.then()
        return super().put(data, media_type)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def files_of(name: str, artifacts: DirectoryStore) -> set[str]:
    return {one.path for one in snapshot.list_files(artifacts, name)}


def test_a_file_that_changes_while_it_is_read_is_read_again(work: Path, tmp_path: Path) -> None:
    (work / "f").write_bytes(bytes(LARGE))
    changes = iter([b"changed" * LARGE])

    def change() -> None:
        for data in changes:
            (work / "f").write_bytes(data)

    store = Meddling(tmp_path / "store", change)
    found = captured(work, store)
    assert found.changing == [] and snapshot.read_file(store, found.digest, "f") == b"changed" * LARGE


def test_a_file_that_goes_on_changing_is_told(work: Path, tmp_path: Path) -> None:
    """rdiff-backup/rdiff-backup#237: files that changed meanwhile were an error for each of their names."""
    (work / "log").write_bytes(bytes(LARGE))
    (work / "same").hardlink_to(work / "log")

    def append() -> None:
        with (work / "log").open("ab") as file:
            file.write(b"more")

    store = Meddling(tmp_path / "store", append)
    found = captured(work, store)
    assert len(found.changing) == 1
    restored(found.digest, store, tmp_path / "back")  # whole as it was at some moment
    assert (tmp_path / "back" / "log").stat().st_size in range(LARGE, LARGE + 20)


@pytest.mark.parametrize("replace", ["nothing", "fifo", "link", "folder"])
def test_what_vanishes_or_turns_into_something_else(
        replace: str, work: Path, tmp_path: Path) -> None:
    for number in range(6):
        (work / f"f{number}").write_bytes(bytes(LARGE + number))
    first, *others = os.listdir(work)

    def meddle() -> None:
        for name in others:
            path = work / name
            if path.is_file() and not path.is_symlink():
                path.unlink()
                if replace == "fifo":
                    os.mkfifo(path)
                elif replace == "link":
                    path.symlink_to("/etc/passwd")
                elif replace == "folder":
                    path.mkdir()

    store = Meddling(tmp_path / "store", meddle)
    found = captured(work, store)
    kinds = {one.path: one.kind for one in snapshot.list_files(store, found.digest)}
    wanted = {"link": "l", "folder": "d"}.get(replace)
    assert kinds == {first: "f", **(dict.fromkeys(others, wanted) if wanted else {})}
    assert sorted(found.skipped) == (sorted(map(os.fsencode, others)) if replace == "fifo" else [])


def test_nothing_that_took_a_files_place_is_opened_for_it(work: Path) -> None:
    """A pipe would keep the reader waiting for ever, a link would lead it out."""
    (work / "f").write_bytes(b"f")
    found = (work / "f").stat()
    os.mkfifo(work / "pipe")
    (work / "link").symlink_to("/etc/passwd")
    (work / "folder").mkdir()
    root = os.open(work, os.O_RDONLY)
    for name in (b"pipe", b"link", b"folder", b"gone"):
        with pytest.raises(OSError) as caught:
            reading.open_found(name, root, found)
        assert caught.value.errno in reading.MOVED, name
    os.close(root)


def test_the_mode_of_what_a_link_leads_to_is_not_touched(
        work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file that its owner may not read the mode is changed for a moment: by then its name may be a link."""
    outside, path, real = tmp_path / "outside", work / "shut", os.open
    outside.write_text("another's")
    outside.chmod(0o600)
    path.write_text("ours")
    path.chmod(0o077)
    found = path.lstat()

    def shut(name: bytes, flags: int, *rest: int, dir_fd: int) -> int:
        if not flags & os.O_PATH and not path.is_symlink():
            path.unlink()
            path.symlink_to(outside)
            raise PermissionError
        return real(name, flags, *rest, dir_fd=dir_fd)

    folder = real(work, os.O_RDONLY)
    monkeypatch.setattr(os, "open", shut)
    with pytest.raises(OSError, match="something else"):
        reading.open_found(b"shut", folder, found)
    os.close(folder)
    assert outside.stat().st_mode & 0o777 == 0o600


def test_a_file_that_grows_is_read_up_to_what_it_was(work: Path) -> None:
    (work / "f").write_bytes(bytes(5 << 20))
    descriptor = os.open(work / "f", os.O_RDONLY)
    for size in (0, 1, LARGE, LARGE + 1, 5 << 20, 6 << 20):
        assert len(reading.read_at(descriptor, 0, size)) == min(size, 5 << 20)
    assert len(reading.read_at(descriptor, 5 << 20, LARGE)) == 0
    os.close(descriptor)


def test_sockets_pipes_and_devices_are_told(work: Path, artifacts: DirectoryStore) -> None:
    os.mkfifo(work / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        here = os.getcwd()
        os.chdir(work)
        listening.bind("sock")
        os.chdir(here)
    if os.geteuid() == 0:
        os.mknod(work / "null", 0o20666, os.makedev(1, 3))
    found = captured(work, artifacts)
    assert sorted(found.skipped) == [b"null", b"pipe", b"sock"][os.geteuid() != 0:]
    assert files_of(found.digest, artifacts) == set()


@pytest.mark.parametrize(("limit", "value"), [
    ("MAX_ENTRIES", 4), ("MAX_BYTES", 49_999), ("MAX_DEPTH", 1), ("MAX_ATTRIBUTE_BYTES", 9)])
def test_each_limit_is_an_error_of_its_own_kind(
        limit: str, value: int, work: Path, artifacts: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "a" / "b").mkdir(parents=True)
    for number in range(2):
        (work / "a" / f"{number}").write_bytes(bytes(25_000))
    try:
        os.setxattr(work / "a", "user.x", b"four")
    except OSError:
        if limit == "MAX_ATTRIBUTE_BYTES":
            pytest.skip("no attributes on this file system")
    monkeypatch.setattr(capture, limit, value)
    with pytest.raises(SandboxError) as caught:
        taken(work, artifacts)
    assert caught.value.kind == "snapshot_limit" and "200 folders deep" in caught.value.hint
    monkeypatch.setattr(capture, limit, value + 1)
    taken(work, artifacts)


def test_the_deepest_that_is_taken_is_restored(work: Path, tmp_path: Path, artifacts: DirectoryStore) -> None:
    deepest = work.joinpath(*["d"] * MAX_DEPTH)
    deepest.mkdir(parents=True)
    (deepest / "f").write_bytes(b"f")
    restored(taken(work, artifacts), artifacts, tmp_path / "back")
    assert (tmp_path / "back").joinpath(*["d"] * MAX_DEPTH, "f").read_bytes() == b"f"
    (deepest / "d").mkdir()
    with pytest.raises(SandboxError, match="too deep"):
        taken(work, artifacts)


def test_many_names_of_one_large_file_count_and_cost_once(work: Path, artifacts: DirectoryStore) -> None:
    with (work / "f").open("wb") as file:
        file.truncate(1 << 30)
    for number in range(50):
        (work / f"name{number}").hardlink_to(work / "f")
    found = captured(work, artifacts)
    assert found.read_bytes == 0 and len(load(found.digest, artifacts).entries) == 52


def test_more_attributes_than_can_be_listed_are_the_workspaces_fault(bubblewrap: Backend) -> None:
    """In a tmpfs a file may have so many that the kernel cannot list them any more."""
    sandbox = bubblewrap.acquire(SandboxSpec(files={"f": b"f"}))
    code = "import os\nfor n in range(400):\n os.setxattr('f', f'user.{n:0>240}', b'')"
    if (result := sandbox.exec(["python3", "-c", code])).exit_code:
        pytest.skip(f"no attributes in a sandbox: {result.stderr!r}")
    with pytest.raises(SandboxError) as caught:
        sandbox.snapshot()
    assert caught.value.kind == "snapshot_limit"
    sandbox.close()


def test_a_workspace_that_cannot_be_read_is_a_broken_sandbox(work: Path, artifacts: DirectoryStore) -> None:
    (work / "f").touch()
    for path, flags in ((work / "f", os.O_RDONLY), (work, os.O_PATH)):
        descriptor = os.open(path, flags)
        with pytest.raises(SandboxError, match="cannot be read") as caught:
            capture.capture(descriptor, artifacts)
        assert caught.value.kind == "snapshot"
        os.close(descriptor)


def test_what_the_store_says_is_passed_on(work: Path, tmp_path: Path) -> None:
    def fail() -> None:
        raise ArtifactStorageError("artifact cannot be written (no space)", where="store")

    for number in range(20):
        (work / f"f{number}").write_bytes(b"%d" % number * INLINE_BYTES)
    with pytest.raises(ArtifactStorageError):
        captured(work, Meddling(tmp_path / "store", fail))


def test_many_contents_are_stored_whatever_their_number(work: Path, artifacts: DirectoryStore) -> None:
    for count in (1, 8, 9, 300):
        for number in range(count):
            (work / f"f{number}").write_bytes(b"%d.%d " % (count, number) * 2000)
        name = taken(work, artifacts)
        for number in range(count):
            assert snapshot.read_file(artifacts, name, f"f{number}") == b"%d.%d " % (count, number) * 2000


def limit_inline(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    for module in ("manifest", "capture"):
        monkeypatch.setattr(f"sandboxes.{module}.ALL_INLINE_BYTES", size)


def test_more_small_files_than_a_manifest_should_hold(
        work: Path, tmp_path: Path, artifacts: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest is held in memory and written anew by each snapshot."""
    files = {f"{number}": b"%d" % (10 + number) * 100 for number in range(20)}
    for name, data in (files | {"empty": b""}).items():
        (work / name).write_bytes(data)
        (work / name).chmod(0o644)
    (work / "link").hardlink_to(work / "3")
    work.chmod(0o755)
    limit_inline(monkeypatch, 4000)
    inline = taken(work, artifacts)
    assert all(entry.digest is None for entry in load(inline, artifacts).entries)
    limit_inline(monkeypatch, 3999)
    apart = taken(work, artifacts)
    assert apart != inline and len(artifacts.get(apart)) < 3000
    assert [one.path for one in load(apart, artifacts).entries if one.content] == [b"link"]
    restored(apart, artifacts, tmp_path / "back")
    assert taken(tmp_path / "back", artifacts) == apart
    (work / "link").unlink()
    (work / "empty").unlink()
    apart = taken(work, artifacts)
    assert apart == snapshot.store_files(files, artifacts) == snapshot.snapshot_digest_of(files)
    base = load(apart, artifacts)
    made = snapshot.laid_over({"0": b"0"}, lambda data: artifacts.put(data).digest, base, artifacts.get)
    assert made == load(snapshot.store_files({**files, "0": b"0"}, artifacts), artifacts)
    assert all(entry.digest is None for entry in made.entries)


def test_what_was_too_much_for_a_manifest_may_fit_again(
        bubblewrap: Backend, artifacts: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"{number}": b"%d" % (10 + number) * 100 for number in range(20)}
    limit_inline(monkeypatch, 3000)
    for _ in range(2):
        sandbox = bubblewrap.acquire(SandboxSpec(workspace=snapshot.store_files(files, artifacts)))
        assert sandbox.snapshot() == snapshot.snapshot_digest_of(files)
        sandbox.exec(["rm", *map(str, range(8))])
        fewer = {name: data for name, data in files.items() if int(name) >= 8}
        assert sandbox.snapshot() == snapshot.snapshot_digest_of(fewer)
        sandbox.close()


LINKED = manifest_of(
    [ROOT, Entry(b"a", "f", 0o755, 1, b"x"), Entry(b"b", "n", 0o755, 1, b"a"), Entry(b"c", "n", 0o755, 1, b"a"),
     Entry(b"d", "d", 0o755), Entry(b"d/e", "n", 0o755, 1, b"a")], [Attribute(b"a", b"user.k", b"v")])


@pytest.mark.parametrize(("files", "wanted", "attributes"), [
    ({"b": b"y"}, [Entry(b"a", "f", 0o755, 1, b"x"), Entry(b"b", "f", 0o644, 1, b"y"),
                   Entry(b"c", "n", 0o755, 1, b"a"), Entry(b"d", "d", 0o755), Entry(b"d/e", "n", 0o755, 1, b"a")],
     [Attribute(b"a", b"user.k", b"v")]),
    ({"a": b"y"}, [Entry(b"a", "f", 0o644, 1, b"y"), Entry(b"b", "f", 0o755, 1, b"x"),
                   Entry(b"c", "n", 0o755, 1, b"b"), Entry(b"d", "d", 0o755), Entry(b"d/e", "n", 0o755, 1, b"b")],
     [Attribute(b"b", b"user.k", b"v")]),
    ({"a/in": b"y", "d": b"z"}, [
        Entry(b"a", "d", 0o755), Entry(b"a/in", "f", 0o644, 1, b"y"), Entry(b"b", "f", 0o755, 1, b"x"),
        Entry(b"c", "n", 0o755, 1, b"b"), Entry(b"d", "f", 0o644, 1, b"z")], [Attribute(b"b", b"user.k", b"v")]),
    ({"a": b"1", "b": b"2", "c": b"3", "d": b"4"}, [
        Entry(name, "f", 0o644, 1, data) for name, data in ((b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (b"d", b"4"))],
     []),
])
def test_files_laid_over_names_of_one_file(
        files: dict[str, bytes], wanted: list[Entry], attributes: list[Attribute], artifacts: DirectoryStore) -> None:
    made = snapshot.laid_over(files, lambda data: artifacts.put(data).digest, LINKED, artifacts.get)
    assert made.entries == [ROOT, *wanted] and made.attributes == attributes
    assert load(artifacts.put(encode(made)).digest, artifacts) == made


def test_a_given_file_replaces_whatever_is_in_its_way(backend: Backend) -> None:
    """What is judged may have put a folder where a hidden test goes, or a link where its folder does."""
    first = backend.acquire(SandboxSpec())
    first.exec(["sh", "-c", "mkdir -p test.py/deep/er && touch test.py/deep/er/x && ln -s /tmp tests && mkfifo run"])
    name = first.snapshot()
    first.close()
    files = {"test.py": b"t", "tests/hidden.py": b"h", "run": b"r"}
    second = backend.acquire(SandboxSpec(workspace=name, files=files))
    assert second.snapshot() == snapshot.snapshot_digest_of(files)
    second.close()
