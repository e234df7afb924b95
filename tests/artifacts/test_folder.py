"""The Folder contract, on a directory and on S3-compatible storage."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from artifacts.folder import Folder, open_folder
from artifacts.local_folder import LocalFolder
from schemas.errors import ConfigError, UnavailableError
from tests.conftest import REPOSITORY
from tests.s3_server import CREDENTIALS, S3Server


def test_what_was_written_is_read(folder: Folder) -> None:
    folder.write("a/b", b"one")
    folder.write("a/b", b"two")
    assert folder.read("a/b") == b"two" and folder.size("a/b") == 3
    assert folder.at("a").read("b") == b"two" and folder.at("a").url == f"{folder.url}/a"
    with folder.reader("a/b") as file:
        file.seek(1)
        assert bytes(file.read()) == b"wo"


def test_what_is_not_there_is_not_there(folder: Folder) -> None:
    assert folder.size("a") is None and list(folder.list()) == []
    with pytest.raises(FileNotFoundError):
        folder.read("a")
    with pytest.raises(FileNotFoundError), folder.reader("a") as file:
        file.read()
    folder.remove("a")
    folder.write("a", b"")
    assert folder.size("a") == 0
    folder.remove("a")
    assert folder.size("a") is None


def test_a_file_is_created_once(folder: Folder) -> None:
    assert folder.create("a", b"first")
    assert not folder.create("a", b"second")
    assert folder.read("a") == b"first"


def test_of_many_creators_one_wins(location: str) -> None:
    tries = in_threads(lambda number: open_folder(location).create("lease", b"%d" % number))
    assert tries.count(True) == 1
    assert open_folder(location).read("lease") == b"%d" % tries.index(True)


def test_a_file_is_replaced_only_if_it_is_as_expected(folder: Folder) -> None:
    assert not folder.replace("a", b"1", b"0")
    assert folder.replace("a", b"1", None)
    assert not folder.replace("a", b"2", None)
    assert not folder.replace("a", b"2", b"0")
    assert folder.replace("a", b"2", b"1")
    assert folder.read("a") == b"2"


def test_of_many_replacers_one_wins(location: str) -> None:
    open_folder(location).write("lease", b"old")
    tries = in_threads(lambda number: open_folder(location).replace("lease", b"%d" % number, b"old"))
    assert tries.count(True) == 1
    assert open_folder(location).read("lease") == b"%d" % tries.index(True)


def in_threads(step: Callable[[int], bool], count: int = 8) -> list[bool]:
    found = [False] * count
    together = threading.Barrier(count)

    def run(number: int) -> None:
        together.wait()
        found[number] = step(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_files_are_listed_by_prefix_with_size_and_time(folder: Folder) -> None:
    before = time.time_ns() // 1000 - 2_000_000
    for name in ("x/1", "x/22", "x/3/4", "xx", "y"):
        folder.write(name, b"." * len(name))
    assert sorted(stored.name for stored in folder.list()) == ["x/1", "x/22", "x/3/4", "xx", "y"]
    assert sorted(stored.name for stored in folder.list("x/")) == ["x/1", "x/22", "x/3/4"]
    assert sorted(stored.name for stored in folder.list("x/2")) == ["x/22"]
    assert sorted(stored.name for stored in folder.at("x").list()) == ["1", "22", "3/4"]
    assert sorted(stored.name for stored in folder.list("x")) == ["x/1", "x/22", "x/3/4", "xx"]
    assert all(stored.size_bytes == len(stored.name) for stored in folder.list())
    assert all(before <= stored.modified <= time.time_ns() // 1000 + 2_000_000 for stored in folder.list())


def test_a_large_file_is_written_in_bounded_memory(folder: Folder) -> None:
    piece = os.urandom(1 << 20)
    tracemalloc.start()
    with folder.writer("large") as file:
        for _ in range(40):
            file.write(piece)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert folder.size("large") == 40 << 20 and peak < 4 << 20
    with folder.reader("large") as file:
        file.seek((40 << 20) - 5)
        assert bytes(file.read(10)) == piece[-5:]


def test_a_writer_that_failed_leaves_no_file(folder: Folder) -> None:
    with pytest.raises(KeyError), folder.writer("a") as file:
        file.write(b"." * (9 << 20))
        raise KeyError
    assert folder.size("a") is None and list(folder.list()) == []


def test_a_write_is_on_disk_with_its_name_when_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file that is written, and every folder that got a name, is synced; the file before its last name."""
    synced: list[str] = []
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    folder = LocalFolder(tmp_path / "new")
    folder.write("deep/a", b"1")
    assert str(tmp_path) in synced and str(tmp_path / "new") in synced
    assert ".part" in synced[-2] and synced[-1] == str(tmp_path / "new" / "deep")
    for step in (lambda: folder.create("deep/b", b"1"), lambda: folder.replace("deep/a", b"2", b"1")):
        synced.clear()
        step()
        assert ".part" in synced[-2] and synced[-1] == str(tmp_path / "new" / "deep")
    synced.clear()
    with folder.writer("deep/c") as file:
        file.write(b"1")
    assert synced == [str(tmp_path / "new" / "deep" / "c"), str(tmp_path / "new" / "deep")]


def test_what_another_library_wrote_can_be_made_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("1", "2"):
        (tmp_path / name).write_bytes(b".")
    synced: list[str] = []
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    LocalFolder(tmp_path).sync(["1", "2", "none"])
    assert synced == [str(tmp_path / "1"), str(tmp_path / "2"), str(tmp_path)]


@pytest.mark.parametrize(("place", "what"), [
    ("s3://", "not a bucket"), ("s3://Not_A_Bucket/x", "not a bucket"), ("gs://bucket/x", "unknown kind of storage")])
def test_a_wrong_location_is_a_mistake_with_a_hint(place: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as wrong:
        open_folder(place, {})
    assert "s3://bucket/prefix" in wrong.value.hint


def test_an_endpoint_without_tls_must_be_wanted() -> None:
    far = {**CREDENTIALS, "AWS_ENDPOINT_URL": "http://storage.example:9000"}
    with pytest.raises(ConfigError, match="without TLS") as wrong:
        open_folder("s3://bucket/x", far)
    assert "AWS_ALLOW_HTTP" in wrong.value.hint
    open_folder("s3://bucket/x", {**far, "AWS_ALLOW_HTTP": "true"})


def test_a_missing_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(UnavailableError, match="obstore") as missing:
        open_folder("s3://bucket/x", CREDENTIALS)
    assert "headrace[s3]" in missing.value.hint


STEPS: dict[str, Callable[[Folder], object]] = {
    "read": lambda folder: folder.read("a"), "size": lambda folder: folder.size("a"),
    "list": lambda folder: list(folder.list()), "write": lambda folder: folder.write("a", b"1"),
    "create": lambda folder: folder.create("b", b"1"), "replace": lambda folder: folder.replace("a", b"2", b"1"),
    "writer": lambda folder: written(folder, b"1")}


def written(folder: Folder, data: bytes) -> None:
    with folder.writer("c") as file:
        file.write(data)


@pytest.mark.parametrize("step", STEPS)
def test_a_missing_bucket_is_not_a_missing_file(s3_server: S3Server, step: str) -> None:
    folder = open_folder("s3://no-such-bucket/x", s3_server.environment)
    with pytest.raises(OSError, match="no such bucket") as wrong:
        STEPS[step](folder)
    assert not isinstance(wrong.value, FileNotFoundError)


@pytest.mark.parametrize("step", STEPS)
def test_wrong_credentials_are_told_and_not_shown(s3_server: S3Server, bucket: str, step: str) -> None:
    folder = open_folder(f"{bucket}/x")
    folder.write("a", b"1")
    s3_server.check_credentials(True)
    try:
        with pytest.raises(PermissionError, match="refused the credentials") as wrong:
            STEPS[step](folder)
    finally:
        s3_server.check_credentials(False)
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in str(wrong.value)
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in repr(folder)
    assert folder.read("a") == b"1"


@pytest.mark.parametrize("step", STEPS)
def test_an_endpoint_that_is_down_is_told_soon(step: str) -> None:
    folder = open_folder("s3://bucket/x", {**CREDENTIALS, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"})
    began = time.monotonic()
    with pytest.raises(OSError, match="does not answer"):
        STEPS[step](folder)
    assert time.monotonic() - began < 20


def test_opening_costs_the_command_line_nothing() -> None:
    code = "import sys, artifacts, artifacts.folder; print([m for m in ('obstore', 'pyarrow') if m in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=True)
    assert told.stdout.strip() == "[]"
