"""The artifact store, on a directory and on S3-compatible storage."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from artifacts import open_store
from artifacts.folder import Folder
from artifacts.store import FolderStore, file_of
from schemas.errors import ArtifactError
from schemas.ids import digest
from schemas.settings import Settings


@pytest.fixture
def store(folder: Folder) -> FolderStore:
    return FolderStore(folder)


def test_what_was_put_is_got(store: FolderStore) -> None:
    ref = store.put(b"hello", "text/plain")
    assert ref.digest == digest(b"hello") and ref.size_bytes == 5 and ref.media_type == "text/plain"
    assert store.get(ref.digest) == b"hello" and store.has(ref.digest)
    assert store.get(store.put(b"").digest) == b""


def test_it_is_durable_before_it_is_named(store: FolderStore, folder: Folder) -> None:
    """Another process finds it as soon as `put` has returned."""
    ref = store.put(b"hello")
    assert FolderStore(folder).get(ref.digest) == b"hello"


def test_putting_twice_writes_once(store: FolderStore, folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = store.put(b"hello")
    again = FolderStore(folder)
    monkeypatch.setattr(type(folder), "write", lambda *_: pytest.fail("written again"))
    assert store.put(b"hello") == again.put(b"hello") == ref
    monkeypatch.setattr(type(folder), "size", lambda *_: pytest.fail("asked again"))
    assert store.put(b"hello") == again.put(b"hello") == ref


def test_missing_and_corrupt_are_told_apart(store: FolderStore, folder: Folder) -> None:
    with pytest.raises(ArtifactError, match="missing"):
        store.get(digest(b"never"))
    assert not store.has(digest(b"never"))
    name = store.put(b"hello").digest
    folder.write(file_of(name), b"hellO")
    with pytest.raises(ArtifactError, match="corrupt"):
        store.get(name)
    with pytest.raises(ArtifactError, match="not a digest"):
        store.get("../../etc/passwd")


def test_what_was_cut_short_is_put_anew(store: FolderStore, folder: Folder) -> None:
    name = digest(b"hello")
    folder.write(file_of(name), b"he")
    assert store.put(b"hello").digest == name
    assert store.get(name) == b"hello"


def test_memory_for_known_digests_is_bounded(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("artifacts.store._KNOWN", 5)
    names = [store.put(b"%d" % number).digest for number in range(20)]
    assert len(store._known) == 5
    assert all(store.has(name) for name in names)


def test_many_threads_may_put_the_same(store: FolderStore) -> None:
    threads = [threading.Thread(target=store.put, args=(b"same",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.get(digest(b"same")) == b"same"
    assert len(list(store.folder.list())) == 1


def test_the_setting_names_the_place(location: str, tmp_path: Path) -> None:
    store = open_store(Settings(home=str(tmp_path / "home"), artifacts=location))
    name = store.put(b"hello").digest
    assert open_store(Settings(home=str(tmp_path / "other"), artifacts=location)).get(name) == b"hello"


def test_storage_that_is_missing_is_a_clear_error(bucket: str, tmp_path: Path) -> None:
    store = open_store(Settings(artifacts=f"{bucket}-nowhere/x"))
    for step in (lambda: store.put(b"1"), lambda: store.get(digest(b"1")), lambda: store.has(digest(b"1"))):
        with pytest.raises(ArtifactError, match="no such bucket") as wrong:
            step()
        assert f"{bucket}-nowhere" in wrong.value.where
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ArtifactError, match="cannot be made"):
        open_store(Settings(artifacts=str(tmp_path / "file" / "below")))


def test_what_cannot_be_written_is_a_clear_error_and_can_be_later(tmp_path: Path) -> None:
    store = open_store(Settings(home=str(tmp_path)))
    (tmp_path / "artifacts" / digest(b"1")[7:9]).write_bytes(b"a file in the way")
    with pytest.raises(ArtifactError, match="cannot be written"):
        store.put(b"1")
    (tmp_path / "artifacts" / digest(b"1")[7:9]).unlink()
    assert store.get(store.put(b"1").digest) == b"1"
