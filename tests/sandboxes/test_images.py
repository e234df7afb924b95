"""Images: one content is one image however it came, hostile archives lead nowhere, what is half is never used."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import signal
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import zstandard

from sandboxes import roottree
from sandboxes.images import Image, Images
from schemas.errors import SandboxError
from tests.conftest import REPOSITORY
from tests.sandboxes.rootfs import layout, plain_file, saved, special, tar_of, write_files

SHELL = [("bin/", None), ("bin/sh", b"#!a shell\n")]
FILES = {"bin/sh": b"#!a shell\n", "etc/name": b"small\n", "deep/er/file": bytes(10_000)}


@pytest.fixture
def images(tmp_path: Path) -> Images:
    return Images(tmp_path / "images", None)


def take(images: Images, tmp_path: Path, data: bytes) -> Image:
    archive = tmp_path / "image.tar"
    archive.write_bytes(data)
    return images.take(str(archive))


def refused(images: Images, tmp_path: Path, data: bytes) -> str:
    with pytest.raises(SandboxError) as caught:
        take(images, tmp_path, data)
    assert caught.value.kind == "image" and str(tmp_path) in str(caught.value)
    assert not [path for path in images.cache.root.iterdir() if (path / "root").exists()]
    return caught.value.what


def content(image: Image) -> dict[str, bytes]:
    return {str(path.relative_to(image.root)): path.read_bytes() for path in image.root.rglob("*")
            if path.is_file() and not path.is_symlink() and path.parent.name != "etc"}


def test_the_same_content_is_the_same_image_whatever_it_comes_in(images: Images, tmp_path: Path) -> None:
    folder = write_files(tmp_path / "folder", FILES)
    os.chmod(folder / "bin/sh", 0o700)
    members = [("./", None), ("./bin/sh", FILES["bin/sh"]), *(
        (f"./{name}", plain_file(FILES[name])) for name in ("etc/name", "deep/er/file"))]
    plain = tar_of(members)
    lower, upper = tar_of([("bin/sh", b"older"), ("gone", b"x")]), tar_of([*members, (".wh.gone", b"")])
    docker = tar_of(saved([lower, upper]).items())
    forms = {
        "plain": plain, "gzip": gzip.compress(plain), "bzip2": bz2.compress(plain), "xz": lzma.compress(plain),
        "zstd": zstandard.compress(plain[:5000]) + zstandard.compress(plain[5000:]), "docker": docker,
        "docker.gz": gzip.compress(docker),
        "oci": tar_of(layout([gzip.compress(lower), zstandard.compress(upper)]).items())}
    names = {"folder": images.take(str(folder)).digest}
    for form, data in forms.items():
        (tmp_path / form).write_bytes(data)
        names[form] = images.take(str(tmp_path / form)).digest
    layered = write_files(tmp_path / "layout", layout([lower, upper]))
    names["layout"] = images.take(str(layered)).digest
    assert set(names.values()) == {names["folder"]}, names
    assert len([path for path in images.cache.root.iterdir() if len(path.name) == 64]) == 1
    assert content(images.take(names["folder"])) == {name: FILES[name] for name in ("bin/sh", "deep/er/file")}


def test_other_content_or_another_environment_is_another_image(images: Images, tmp_path: Path) -> None:
    one = take(images, tmp_path, tar_of(SHELL))
    two = take(images, tmp_path, tar_of([*SHELL, ("more", b"")]))
    three = take(images, tmp_path, tar_of(saved([tar_of(SHELL)], ["PATH=/opt/bin", "A=b=c", "odd"]).items()))
    assert len({one.digest, two.digest, three.digest}) == 3
    assert three.environment == {"PATH": "/opt/bin", "A": "b=c"}


@pytest.mark.parametrize(("members", "told"), [
    ([("../out", b"x")], "leads out"), ([("a/../../out", b"x")], "leads out"), ([("..", None)], "leads out"),
    ([("a", "/nowhere"), ("a/x", b"x")], "leads nowhere"), ([("a", "a"), ("a/x", b"x")], "leads nowhere"),
    ([("a", special(tarfile.LNKTYPE, "../../etc/passwd"))], "leads out"),
    ([("a", special(tarfile.LNKTYPE, "etc/passwd"))], "hard link"), ([("etc/.wh.", b"")], "without a name"),
    ([("x/" * 200 + "y", b"")], "deep"),
    ([(("link/" if turn else "") + "x/" * 90 + "y", b"") if there else ("link", "/x" * 90 * turn)
      for turn in range(13) for there in (False, True) if turn or there], "deep"),
    ([("n" * 300, b"")], "File name too long"),
], ids=["above", "climbs", "dots", "below a link to nothing", "below a link to itself", "hard link out",
        "hard link to nothing", "hides nothing", "deep", "deep by links", "long"])
def test_names_that_lead_out_or_nowhere_are_refused(members: list[tuple[str, object]], told: str, images: Images,
                                                    tmp_path: Path) -> None:
    assert told in refused(images, tmp_path, tar_of([*SHELL, *members]))
    assert not (tmp_path / "out").exists()


def test_links_out_are_kept_as_links_and_nothing_is_written_through_them(images: Images, tmp_path: Path) -> None:
    """A link to a folder outside, then a file below it, wrote outside of the target (undock#460, hypeman#456)."""
    outside = tmp_path / "outside"
    outside.mkdir()
    image = take(images, tmp_path, tar_of([
        *SHELL, ("data/", None), ("absolute", "/data"), ("absolute/one", b"1"), ("/rooted", b"2"),
        ("climbing", "../../../data"), ("climbing/two", b"3"), ("out", str(outside)), ("lib", "usr/lib"),
        ("usr/lib/", None), ("lib/three", b"4"), ("usr/link", "/data"), ("usr/link/four", b"5")]))
    assert content(image) == {"bin/sh": b"#!a shell\n", "data/one": b"1", "rooted": b"2", "data/two": b"3",
                              "usr/lib/three": b"4", "data/four": b"5"}
    assert (image.root / "out").is_symlink() and list(outside.iterdir()) == []


def test_devices_and_pipes_are_left_out_and_set_uid_bits_too(images: Images, tmp_path: Path) -> None:
    program = special(tarfile.REGTYPE)
    program.mode = 0o4755
    image = take(images, tmp_path, tar_of([
        *SHELL, ("sda", special(tarfile.BLKTYPE)), ("null", special(tarfile.CHRTYPE)),
        ("pipe", special(tarfile.FIFOTYPE)), ("dev/fd", "/proc/self/fd"), ("program", program)]))
    assert sorted(path.name for path in image.root.iterdir()) == ["bin", "etc", "program"]
    assert (image.root / "program").stat().st_mode & 0o7777 == 0o755
    assert json.loads((image.root.parent / "image.json").read_bytes())["left_out"] == 3


LOWER = [*SHELL, ("a/one", b"1"), ("a/two", b"2"), ("b/three", b"3"), ("c/four", b"4")]


@pytest.mark.parametrize(("upper", "left"), [
    # Python's base images lost files that stood before the mark in the same layer (hypeman#95, containerd#6991).
    ([("a/new", b"5"), ("a/.wh..wh..opq", b"")], {"a/new", "b/three", "c/four"}),
    ([("a/.wh..wh..opq", b""), ("a/new", b"5")], {"a/new", "b/three", "c/four"}),
    # A folder hidden, and what was in it once more: the second made the folder again (umoci#254).
    ([(".wh.b", b""), ("b/.wh.three", b"")], {"a/one", "a/two", "c/four"}),
    # A mark that is a hard link to a file of a lower layer (smolvm#397).
    ([("c/.wh.four", special(tarfile.LNKTYPE, "a/one"))], {"a/one", "a/two", "b/three"}),
    # A mark in the root hid all files of that name everywhere (fuse-overlayfs#151).
    ([(".wh.one", b"")], {"a/one", "a/two", "b/three", "c/four"}),
    ([("a", b"a file now")], {"a", "b/three", "c/four"}), ([("a", "b")], {"b/three", "c/four"}),
    ([(".wh.a", b""), ("a/new", b"5")], {"a/new", "b/three", "c/four"}),
    ([("c/four", None), ("c/four/five", b"5")], {"a/one", "a/two", "b/three", "c/four/five"}),
    ([(".wh..wh..opq", b""), *SHELL], set()), ([(".wh..wh.plnk/x", b""), (".wh.absent", b"")],
                                               {"a/one", "a/two", "b/three", "c/four"}),
], ids=["mark last", "mark first", "hidden twice", "hard link", "mark in the root", "file for folder",
        "link for folder", "hidden and made", "folder for file", "all", "reserved"])
def test_what_a_layer_hides_is_gone(upper: list[tuple[str, object]], left: set[str], images: Images,
                                    tmp_path: Path) -> None:
    image = take(images, tmp_path, tar_of(saved([tar_of(LOWER), tar_of(upper)]).items()))
    assert set(content(image)) - {"bin/sh", ".wh..wh.plnk/x"} == left


def test_names_are_bytes(images: Images, tmp_path: Path) -> None:
    """An exported container could not be taken in, as a name was not of the reader's locale (ish#1387)."""
    names = [b"\xff\xfe", "\u00fc".encode(), b"line\nbreak", b"'; rm -rf $HOME #", b" ", b"x" * 255]
    members = [(os.fsdecode(name), b"1") for name in names]
    image = take(images, tmp_path, tar_of([*SHELL, *members, ("link", os.fsdecode(names[0]))]))
    assert set(names) < set(os.listdir(os.fsencode(image.root)))
    assert os.readlink(os.fsencode(image.root) + b"/link") == names[0]
    again = Images(tmp_path / "other", None).take(str(image.root))
    assert again.digest == image.digest


def test_hard_links_and_holes_take_their_space_once(images: Images, tmp_path: Path) -> None:
    """Hard links became copies: 33 MB of archive, 1.3 GB on disk (rikkahub#1608)."""
    block = os.urandom(1 << 20)
    image = take(images, tmp_path, tar_of([
        *SHELL, ("one", block), ("two", special(tarfile.LNKTYPE, "one")), ("hole", bytes(64 << 20))]))
    assert (image.root / "one").stat().st_ino == (image.root / "two").stat().st_ino
    assert (image.root / "two").read_bytes() == block
    assert (image.root / "hole").stat().st_size == 64 << 20 and (image.root / "hole").stat().st_blocks < 100


def without(members: dict[str, bytes], name: str) -> dict[str, bytes]:
    return {other: data for other, data in members.items() if other != name}


def damaged_header(data: bytes) -> bytes:
    return data[:1536] + b"\xff" * 512 + data[2048:]


@pytest.mark.parametrize(("data", "told"), [
    (b"", "cannot be read"), (b"no archive at all" * 100, "cannot be read"),
    (b"\x1f\x8b" + b"x" * 100, "cannot be read"), (gzip.compress(tar_of(LOWER))[:-20], "cannot be read"),
    (tar_of(LOWER)[:1536], "ends in the middle"), (tar_of(LOWER)[:1300], "cannot be read"),
    (damaged_header(tar_of(LOWER)), "damaged"),
    (tar_of([("a", b"x")]), "no /bin/sh"), (tar_of([("bin/sh", "/absent")]), "no /bin/sh"),
    (tar_of({**saved([tar_of(SHELL)]), "manifest.json": b"[1"}.items()), "cannot be read"),
    (tar_of({**saved([tar_of(SHELL)]), "manifest.json": b'["x"]'}.items()), "cannot be read"),
    (tar_of({**saved([tar_of(SHELL)]), "manifest.json": b"[{}, {}]"}.items()), "holds 2 images"),
    (tar_of(without(saved([tar_of(SHELL), b""]), "1/layer.tar").items()), "layer is missing"),
    (tar_of(without(saved([tar_of(SHELL)]), "config.json").items()), "part of it is missing"),
    (tar_of(saved([tar_of(SHELL)], architecture="s390x").items()), "is for s390x"),
], ids=["empty", "text", "not gzip", "half a gzip", "cut between", "cut inside", "header", "no shell",
        "link to nothing", "manifest", "manifest of texts", "two images", "no layer", "no config", "other machine"])
def test_a_damaged_archive_is_told_and_never_a_smaller_image(data: bytes, told: str, images: Images,
                                                             tmp_path: Path) -> None:
    assert told in refused(images, tmp_path, data)


def test_more_than_the_bounds_is_refused_before_it_is_unpacked(images: Images, tmp_path: Path,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandboxes.roottree.MAX_BYTES", 1 << 20)
    monkeypatch.setattr("sandboxes.archive.MAX_BYTES", 1 << 20)
    bomb = gzip.compress(bytes(8 << 20))
    assert "GiB" in refused(images, tmp_path, bomb)
    monkeypatch.setattr("sandboxes.roottree.MAX_ENTRIES", 5)
    assert "more than 5 files" in refused(images, tmp_path, tar_of([*SHELL, *((str(n), b"") for n in range(5))]))


def test_what_is_not_there_is_told(images: Images) -> None:
    for reference in ("/no/such/folder", "sha256:" + "0" * 64, "debian:bookworm"):
        with pytest.raises(SandboxError) as caught:
            images.take(reference)
        assert caught.value.kind == "image" and reference in str(caught.value)


def test_an_image_is_kept_by_its_digest_and_its_source_is_read_once(tmp_path: Path) -> None:
    archive, folder = tmp_path / "a.tar", write_files(tmp_path / "f", {"bin/sh": b"one"})
    archive.write_bytes(tar_of(SHELL))
    first, second = Images(tmp_path / "images", None), Images(tmp_path / "images", None)
    one, other = first.take(str(archive)).digest, first.take(str(folder)).digest
    before = {path.name: path.stat().st_ino for path in first.cache.root.iterdir()}
    assert second.take(str(archive)).digest == one and second.take(str(folder)).digest == other
    assert {path.name: path.stat().st_ino for path in first.cache.root.iterdir()} == before
    archive.write_bytes(tar_of([*SHELL, ("new", b"")]))
    (folder / "bin/sh").write_text("two")
    third = Images(tmp_path / "images", None)
    assert third.take(str(archive)).digest != one and third.take(str(folder)).digest != other
    archive.unlink()
    assert third.take(one).digest == one


def test_many_at_once_unpack_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    write = roottree.write
    monkeypatch.setattr(roottree, "write", lambda *given: written.append(given) or write(*given))  # type: ignore[func-returns-value]
    folder = write_files(tmp_path / "folder", {"bin/sh": b"x", **{f"d{n}/f": b"y" * n for n in range(300)}})
    owners = [Images(tmp_path / "images", None) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda images: images.take(str(folder)), owners))
    assert len({image.digest for image in found}) == len(written) == 1
    names = [path.name for path in (tmp_path / "images").iterdir() if path.name != "sources"]
    assert names == [found[0].digest.removeprefix("sha256:")]


TAKER = """
import os, sys
from pathlib import Path
from sandboxes import roottree
from sandboxes.images import Images
count = 0
mkdir = os.mkdir
def counted(*given, **named):
    global count
    count += 1
    if count == 40:
        print("half", flush=True)
        sys.stdin.read()
    return mkdir(*given, **named)
os.mkdir = counted
Images(Path(sys.argv[1]), None).take(sys.argv[2])
"""


def test_kill_9_in_the_middle_leaves_no_image_and_a_reaper_takes_the_half(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "folder", {"bin/sh": b"x", **{f"d{n}/f": b"y" * n for n in range(300)}})
    root = tmp_path / "images"
    taker = subprocess.Popen([sys.executable, "-c", TAKER, str(root), str(folder)], cwd=REPOSITORY,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert taker.stdout and taker.stdout.readline() == b"half\n"
    images = Images(root, None)
    half, = root.glob(".half-*")
    long_ago = time.time() - 3600
    os.utime(half, (long_ago, long_ago))
    assert images.cache.reap() == 0 and half.is_dir()  # its maker lives
    taker.send_signal(signal.SIGKILL)
    taker.communicate()
    image = images.take(str(folder))
    assert len(content(image)) == 301
    assert images.cache.reap() == 1 and list(root.glob(".*")) == []


def test_what_nobody_used_for_long_is_removed_and_what_is_used_is_not(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    user, other = Images(tmp_path / "images", None), Images(tmp_path / "images", None)
    archive.write_bytes(tar_of(SHELL))
    used = user.take(str(archive))
    archive.write_bytes(tar_of([*SHELL, ("more", b"")]))
    unused = other.take(str(archive))
    other.close()
    long_ago = time.time() - 40 * 24 * 3600
    assert user.cache.reap() == 0
    for image in (used, unused):
        os.utime(image.root.parent, (long_ago, long_ago))
    assert other.cache.reap() == 1
    assert used.root.is_dir() and not unused.root.exists()
    user.close()
    assert other.take(used.digest).root.is_dir()
    other.close()
    assert other.cache.reap() == 0  # taking it was a use
