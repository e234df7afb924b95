"""What was in a workspace is there again after its snapshot was restored, on this machine or another."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import threading
from pathlib import Path

import pytest

from artifacts.store import DirectoryStore
from sandboxes import snapshot
from sandboxes.manifest import RICH_FORMAT, Attribute, Entry, encode, load
from sandboxes.restore import data_of, restore
from schemas.errors import ArtifactError, SandboxError
from schemas.ids import DIGEST_PREFIX, digest
from tests.sandboxes.trees import ROOT, mode_of, restored, stored, taken


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def back(tmp_path: Path) -> Path:
    return tmp_path / "back"


def again(work: Path, artifacts: DirectoryStore, back: Path) -> str:
    """Take, restore, and see that it is the same again."""
    name = taken(work, artifacts)
    assert not restored(name, artifacts, back).lost
    assert taken(back, artifacts) == name
    return name


def test_names_of_one_file_stay_names_of_one_file(work: Path, back: Path, artifacts: DirectoryStore) -> None:
    (work / "sub").mkdir()
    for name, data in (("small", b"s"), ("large", bytes(range(256)) * 100)):
        (work / name).write_bytes(data)
        (work / "sub" / name).hardlink_to(work / name)
        (work / f"a-{name}").hardlink_to(work / name)
    (work / "alone").write_bytes(b"s")
    name = again(work, artifacts, back)
    for file in ("small", "large"):
        assert len({os.stat(back / path).st_ino for path in (file, f"sub/{file}", f"a-{file}")}) == 1
        assert (back / file).stat().st_nlink == 3
    assert (back / "alone").stat().st_nlink == 1
    kinds = {entry.path: (entry.kind, entry.content) for entry in load(name, artifacts).entries}
    assert kinds[b"small"] == kinds[b"sub/small"] == ("n", b"a-small")
    assert snapshot.read_file(artifacts, name, "sub/large") == bytes(range(256)) * 100
    assert {one.path: one.kind for one in snapshot.list_files(artifacts, name)}["sub/small"] == "f"


def test_names_of_one_file_and_copies_have_digests_of_their_own(work: Path, artifacts: DirectoryStore) -> None:
    (work / "a").write_bytes(b"same")
    (work / "b").write_bytes(b"same")
    copies = taken(work, artifacts)
    (work / "b").unlink()
    (work / "b").hardlink_to(work / "a")
    assert taken(work, artifacts) != copies


def test_a_name_elsewhere_does_not_count(work: Path, tmp_path: Path, artifacts: DirectoryStore) -> None:
    (work / "a").write_bytes(b"a")
    alone = taken(work, artifacts)
    (tmp_path / "elsewhere").hardlink_to(work / "a")
    assert taken(work, artifacts) == alone


def test_unreadable_names_of_one_file(work: Path, back: Path, artifacts: DirectoryStore) -> None:
    """borgbackup/borg#2092: the second name was kept as a link to a first that was left out."""
    (work / "hl1").touch()
    (work / "hl1").chmod(0)
    (work / "hl2").hardlink_to(work / "hl1")
    again(work, artifacts, back)
    assert (back / "hl1").stat().st_ino == (back / "hl2").stat().st_ino and mode_of(back / "hl2") == 0


def test_attributes_come_back(work: Path, back: Path, artifacts: DirectoryStore) -> None:
    (work / "sub").mkdir()
    (work / "f").write_bytes(b"f")
    plain = taken(work, artifacts)
    try:
        os.setxattr(work / "f", "user.empty", b"")
    except OSError as wrong:
        pytest.skip(f"no attributes on this file system: {wrong.strerror}")
    os.setxattr(work / "f", "user.key", bytes(range(256)))
    os.setxattr(work / "sub", os.fsdecode(b"user.\xff"), b"folder")
    (work / "g").hardlink_to(work / "f")
    (work / "f").chmod(0o400)
    (work / "sub").chmod(0o500)
    assert again(work, artifacts, back) != plain
    assert os.getxattr(back / "g", "user.key") == bytes(range(256)) and os.getxattr(back / "f", "user.empty") == b""
    assert os.getxattr(back / "sub", os.fsdecode(b"user.\xff")) == b"folder"


def test_an_attribute_that_cannot_be_set_is_told_and_costs_no_other(back: Path, artifacts: DirectoryStore) -> None:
    """borgbackup/borg#2161: one that was too long for the file system ended the whole extraction."""
    files = [Entry(b"a", "f", 0o644, 1, b"a"), Entry(b"b", "f", 0o644, 1, b"b")]
    too_long = Attribute(b"a", b"user.long", bytes(70_000))
    name = stored([ROOT, *files], artifacts, [too_long, Attribute(b"b", b"user.b", b"b")])
    found = restored(name, artifacts, back)
    assert found.lost[0] == b"a" and (back / "a").read_bytes() == b"a"
    if found.lost == [b"a"]:  # else this file system keeps none
        assert os.getxattr(back / "b", "user.b") == b"b"


@pytest.mark.parametrize("size", [1 << 20, 40 << 20, 70 << 20])
def test_holes_stay_holes(size: int, work: Path, back: Path, artifacts: DirectoryStore) -> None:
    """restic/restic#79, teejee2008/timeshift#864: sparse files came back full, and the disk with them."""
    with (work / "sparse").open("wb") as file:
        for at in (0, size // 2, size - 3):
            file.seek(at)
            file.write(b"xyz")
    with (work / "nothing").open("wb") as file:
        file.truncate(size)
    again(work, artifacts, back)
    assert (back / "sparse").read_bytes() == (work / "sparse").read_bytes()
    for name in ("sparse", "nothing"):
        found = (back / name).stat()
        assert (found.st_size, found.st_blocks * 512 < 256 << 10) == (size, True)


def test_a_full_file_has_the_digest_of_a_sparse_one(work: Path, artifacts: DirectoryStore) -> None:
    for size in (100_000, 65 << 20):
        with (work / "f").open("wb") as file:
            file.truncate(size)
        sparse = taken(work, artifacts)
        (work / "f").write_bytes(bytes(size))
        assert taken(work, artifacts) == sparse


def test_where_data_is() -> None:
    rng = random.Random(0)
    for _ in range(200):
        pages = [bytes(4096) if rng.random() < 0.5 else rng.randbytes(4096) for _ in range(rng.randrange(8))]
        part = b"".join(pages) + rng.choice((b"", bytes(rng.randrange(1, 4096)), b"tail"))
        rebuilt = bytearray(len(part))
        for start, stop in data_of(part):
            rebuilt[start:stop] = part[start:stop]
        assert rebuilt == part
    assert list(data_of(bytes(8192))) == [] and list(data_of(b"x" * 100)) == [(0, 100)]


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o6711, 0o000, 0o222, 0o777, 0o1644])
def test_modes_are_exact(mode: int, work: Path, back: Path, artifacts: DirectoryStore) -> None:
    """xcat2/confluent#263, LanternOps/breeze#5395: set-uid bits were lost, as the owner was changed after the mode."""
    (work / "f").write_bytes(b"f")
    (work / "d").mkdir()
    (work / "d" / "in").write_bytes(b"in")
    for path in (work / "f", work / "d"):
        path.chmod(mode)
    owner = (65534, 65534) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    before = os.umask(0o077)
    try:
        name = taken(work, artifacts)
        restored(name, artifacts, back)
        other = back.with_name("other")
        restore(load(name, artifacts), artifacts.get, other, owner)
    finally:
        os.umask(before)
    for folder in (back, other):
        assert mode_of(folder / "f") == mode
        assert mode_of(folder / "d") == mode
        (folder / "d").chmod(0o700)
        (folder / "d").chmod(0o755)  # not everybody may look into one that is shut
        assert (folder / "d" / "in").read_bytes() == b"in"
    assert [(found.st_uid, found.st_gid) for found in map(os.lstat, (other, other / "f", other / "d"))] == [owner] * 3


def test_what_an_ordinary_user_may_not_write_to_or_read(ordinary_folder: Path) -> None:
    """restic/restic#656, rustic-rs/rustic#66: a folder had its mode before its files were written."""
    work, back = ordinary_folder / "work", ordinary_folder / "back"
    artifacts = DirectoryStore(ordinary_folder / "store")
    (work / "a" / "b").mkdir(parents=True)
    for name, mode in (("read", 0o400), ("none", 0), ("write", 0o200)):
        (work / "a" / name).write_bytes(name.encode() * 3000)
        (work / name).hardlink_to(work / "a" / name)
        with contextlib.suppress(OSError):  # where the file system has attributes
            os.setxattr(work / name, "user.key", name.encode())
        (work / name).chmod(mode)
    (work / "a" / "b" / "f").write_bytes(b"f")
    (work / "shut" / "in" / "inner").mkdir(parents=True)
    for path, mode in (("a/b", 0o555), ("a", 0o555), ("shut/in", 0), ("shut", 0)):
        (work / path).chmod(mode)
    again(work, artifacts, back)
    assert (mode_of(back / "a"), mode_of(back / "a" / "b")) == (0o555, 0o555)


def test_paths_longer_than_the_kernel_takes(work: Path, back: Path, artifacts: DirectoryStore) -> None:
    """LanternOps/breeze#5387, restic/restic#4940: what had a long path was left out of what was restored."""
    folder = os.open(work, os.O_RDONLY)
    for _ in range(100):
        os.mkdir("d" * 200, dir_fd=folder)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    for name in (b"first", b"\xff" * 255):
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT, dir_fd=folder))
    os.link(b"first", b"second", src_dir_fd=folder, dst_dir_fd=folder)
    os.close(folder)
    taken_as = again(work, artifacts, back)
    assert len(load(taken_as, artifacts).entries) == 1 + 100 + 3


def test_names_are_bytes(work: Path, back: Path, artifacts: DirectoryStore) -> None:
    names = [b"new\nline", b"\xff\xfe", b"-rf", b"a", b"A", b"a-b", b"a.b", "\u00e9".encode(), "e\u0301".encode(),
             b" ", b"~", b"*", b"\\", b"con", b".hidden", b"...", b"x" * 255]
    for name in names:
        with open(os.path.join(os.fsencode(work), name), "wb") as file:
            file.write(name)
    (work / "dir").mkdir()
    for name in (b"dir-x", b"dir.x", b"dir/x", b"dir/-"):  # sorted between the folder and what is in it
        with open(os.path.join(os.fsencode(work), name), "wb") as file:
            file.write(name)
    again(work, artifacts, back)
    assert sorted(os.listdir(os.fsencode(back))) == sorted([*names, b"dir", b"dir-x", b"dir.x"])
    assert (back / "dir" / "-").read_bytes() == b"dir/-"


def test_links_out_are_kept_and_nothing_is_written_through_them(
        work: Path, back: Path, tmp_path: Path, artifacts: DirectoryStore) -> None:
    """composefs/tar-rs#87: a legitimate link to elsewhere is no attack, writing through it would be one."""
    (work / "etc").symlink_to("/etc")
    (work / "up").symlink_to("../" * 20)
    for number in range(500):
        (work / f"farm{number}").symlink_to(f"farm{(number * 7 + 1) % 500}")
    name = again(work, artifacts, back)
    assert os.readlink(back / "etc") == "/etc"
    entries = [*load(name, artifacts).entries, Entry(b"etc/evil", "f", 0o644, 1, b"x")]
    with pytest.raises(SandboxError, match="outside of its folders"):
        load(stored(sorted(entries, key=lambda one: one.path), artifacts), artifacts)


def test_another_machine_needs_the_store_alone(work: Path, back: Path, artifacts: DirectoryStore) -> None:
    for number in range(30):
        (work / f"f{number}").write_bytes(b"%d" % number * 5000)
    name = taken(work, artifacts)
    elsewhere = DirectoryStore(artifacts.root)  # remembers nothing
    restored(name, elsewhere, back)
    assert taken(back, DirectoryStore(back.with_name("store"))) == name


def test_from_a_store_that_is_far_contents_come_side_by_side(
        work: Path, back: Path, artifacts: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "large").write_bytes(os.urandom(65 << 20))
    for number in range(40):
        (work / f"f{number}").write_bytes(b"%d" % number * 5000)
        (work / f"small{number}").write_bytes(b"%d" % number)
    manifest = load(taken(work, artifacts), artifacts)
    together, asked = threading.Barrier(4), itertools.count()

    def get(name: str) -> bytes:
        if next(asked) in range(1, 41):  # passes only when three others are asked for at the same time
            together.wait(20)
        return artifacts.get(name)

    monkeypatch.setattr("sandboxes.fetching.FAR_S", -1)
    restore(manifest, get, back)
    assert taken(back, artifacts) == digest(encode(manifest)) and next(asked) == 45

    def fail(name: str) -> bytes:
        if next(asked) == 60:
            raise ArtifactError("artifact is missing", value=name)
        return artifacts.get(name)

    with pytest.raises(ArtifactError, match="missing"):
        restore(manifest, fail, back.with_name("other"))


def test_altered_and_missing_content_is_told(work: Path, back: Path, artifacts: DirectoryStore) -> None:
    data = b"content" * 1000
    (work / "f").write_bytes(data)
    name = taken(work, artifacts)
    artifacts.path(digest(data)).write_bytes(data[:-1] + b"X")
    with pytest.raises(ArtifactError, match="corrupt"):
        restored(name, artifacts, back)
    artifacts.path(digest(data)).unlink()
    with pytest.raises(ArtifactError, match="missing"):
        restored(name, artifacts, back.with_name("back2"))
    artifacts.path(name).write_bytes(artifacts.path(name).read_bytes()[:-5])
    with pytest.raises(ArtifactError, match="corrupt"):
        restored(name, DirectoryStore(artifacts.root), back.with_name("back3"))


@pytest.mark.parametrize("said", [6999, 7001, 100_000])
def test_content_of_another_size_is_told(said: int, back: Path, artifacts: DirectoryStore) -> None:
    name = artifacts.put(bytes(7000)).digest
    forged = stored([ROOT, Entry(b"f", "f", 0o644, said, None, name)], artifacts)
    with pytest.raises(SandboxError, match="another size"):
        restored(forged, artifacts, back)
    with pytest.raises(SandboxError, match="another size"):
        snapshot.read_file(artifacts, forged, "f")


BLOCK = bytes.fromhex(digest(b"x").removeprefix(DIGEST_PREFIX))


@pytest.mark.parametrize(("entries", "attributes", "form"), [
    ([ROOT, Entry(b"a", "n", 0o644, 1, b"/etc/passwd")], [], RICH_FORMAT),
    ([ROOT, Entry(b"a", "n", 0o644, 1, b"../a")], [], RICH_FORMAT),
    ([ROOT, Entry(b"a", "f", 0o644, 1, b"x"), Entry(b"b", "n", 0o600, 1, b"a")], [], RICH_FORMAT),
    ([ROOT, Entry(b"a", "n", 0o644, 1, b"b"), Entry(b"b", "f", 0o644, 1, b"x")], [], RICH_FORMAT),
    ([ROOT, Entry(b"a", "l", 0o777, 4, b"/etc"), Entry(b"b", "n", 0o777, 4, b"a")], [], RICH_FORMAT),
    ([ROOT, Entry(b"a", "d", 0o755), Entry(b"b", "n", 0o755, 0, b"a")], [], RICH_FORMAT),
    ([ROOT, Entry(b"a", "f", 0o644, 1, b"x"), Entry(b"b", "n", 0o644, 1, b"a")], [], "headrace.snapshot.v1"),
    ([ROOT, Entry(b"a", "f", 0o644, 2, b"x")], [], RICH_FORMAT),
    ([ROOT, Entry(b"a", "f", 0o644, 1)], [], RICH_FORMAT),
    ([ROOT, Entry(b"a", "f", 0o644, 1, None, "../../etc/passwd")], [], RICH_FORMAT),
    ([ROOT, Entry(b"a", "f", 0o644, 1, b"x", digest(b"x"))], [], RICH_FORMAT),
    ([ROOT, Entry(b"a", "f", 0o100644, 1, b"x")], [], RICH_FORMAT),
    ([ROOT, Entry(b"a", "f", -1, 1, b"x")], [], RICH_FORMAT),
    ([ROOT, Entry(b"a", "f", 0o644, -1, b"")], [], RICH_FORMAT),
    ([ROOT, Entry(b"a", "b", 0o644, 1, BLOCK * 2)], [], RICH_FORMAT),
    ([ROOT, Entry(b"a", "b", 0o644, 3 << 30, BLOCK * 192)], [], RICH_FORMAT),
    ([ROOT, Entry(b"a", "l", 0o777, 0, b"")], [], RICH_FORMAT),
    ([ROOT, Entry(b"a", "l", 0o777, 3, b"a\0b")], [], RICH_FORMAT),
    ([ROOT, Entry(b"a", "l", 0o777)], [], RICH_FORMAT),
    ([ROOT, Entry(b"a" * 256, "d", 0o755)], [], RICH_FORMAT),
    ([ROOT, Entry(b"a\0b", "d", 0o755)], [], RICH_FORMAT),
    ([ROOT, Entry(b"..", "d", 0o755)], [], RICH_FORMAT),
    ([ROOT, Entry(b"a", "d", 0o755), Entry(b"a", "d", 0o755)], [], RICH_FORMAT),
    ([ROOT, Entry(b"a", "f", 0o644, 1, b"x"), Entry(b"a", "f", 0o644, 1, b"y")], [], RICH_FORMAT),
    ([ROOT, Entry(b"b", "d", 0o755), Entry(b"a", "d", 0o755)], [], RICH_FORMAT),
    ([ROOT, Entry(b"a", "p", 0o644)], [], RICH_FORMAT),
    ([Entry(b"", "f", 0o644, 1, b"x")], [], RICH_FORMAT),
    ([Entry(b"", "l", 0o777, 4, b"/etc")], [], RICH_FORMAT),
    ([ROOT], [Attribute(b"", b"security.capability", b"x")], RICH_FORMAT),
    ([ROOT], [Attribute(b"", b"trusted.overlay.opaque", b"y")], RICH_FORMAT),
    ([ROOT], [Attribute(b"a", b"user.a", b"x")], RICH_FORMAT),
    ([ROOT], [Attribute(b"", b"user.a\0", b"x")], RICH_FORMAT),
    ([ROOT], [Attribute(b"", b"user.a", b"x"), Attribute(b"", b"user.a", b"y")], RICH_FORMAT),
    ([ROOT, Entry(b"l", "l", 0o777, 4, b"/etc")], [Attribute(b"l", b"user.a", b"x")], RICH_FORMAT),
    ([ROOT], [Attribute(b"", b"user.%02d" % number, bytes(1 << 20)) for number in range(17)], RICH_FORMAT),
    ([ROOT, *[Entry(b"/".join([b"d"] * depth), "d", 0o755) for depth in range(1, 203)]], [], RICH_FORMAT),
], ids=lambda value: "" if isinstance(value, str) else None)
def test_what_no_capture_could_have_written_is_refused(
        entries: list[Entry], attributes: list[Attribute], form: str, artifacts: DirectoryStore) -> None:
    """onekey-sec/unblob#1624, borgbackup/borg#5603 and others: hard links to elsewhere, names that come twice."""
    with pytest.raises(SandboxError, match="snapshot manifest") as caught:
        load(stored(entries, artifacts, attributes, form), artifacts)
    assert caught.value.kind == "snapshot" and len(str(caught.value)) < 700


def test_too_many_entries_are_refused(artifacts: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandboxes.manifest.MAX_ENTRIES", 3)
    names = [Entry(b"%d" % number, "d", 0o755) for number in range(3)]
    load(stored([ROOT, *names[:2]], artifacts), artifacts)
    with pytest.raises(SandboxError, match="limits"):
        load(stored([ROOT, *names], artifacts), artifacts)


def test_a_manifest_of_the_first_form_is_read_as_ever(back: Path, artifacts: DirectoryStore) -> None:
    name = snapshot.store_files({"a/b": b"x"}, artifacts)
    assert artifacts.get(name).startswith(b"\x92\xb4headrace.snapshot.v1")
    restored(name, artifacts, back)
    assert (back / "a" / "b").read_bytes() == b"x"
