"""A local directory as a Folder. Every write is synced, and so is the directory that names it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from artifacts.folder import Stored
from schemas.files import make_folder, sync_file, sync_folder, write_durably
from schemas.ids import new_id


class LocalFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def url(self) -> str:
        return str(self.path)

    @property
    def options(self) -> Mapping[str, str]:
        return {}

    def at(self, name: str) -> LocalFolder:
        return LocalFolder(self.path / name)

    def make(self) -> None:
        make_folder(self.path)

    def read(self, name: str) -> bytes:
        with open(f"{self.path}/{name}", "rb", buffering=0) as file:  # half of what Path.read_bytes costs
            return file.readall()

    def reader(self, name: str, size: int | None = None) -> BinaryIO:
        return (self.path / name).open("rb")

    def write(self, name: str, data: bytes) -> None:
        with self._beside(name, data) as (beside, path):
            beside.rename(path)
            sync_folder(path.parent)

    @contextmanager
    def writer(self, name: str) -> Iterator[BinaryIO]:
        path = self.path / name
        make_folder(path.parent)
        file = path.open("xb")
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            sync_folder(path.parent)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def create(self, name: str, data: bytes) -> bool:
        if (self.path / name).exists():
            return False
        with self._beside(name, data) as (beside, path):
            try:
                path.hardlink_to(beside)
            except FileExistsError:
                return False
            beside.unlink()
            sync_folder(path.parent)
        return True

    def replace(self, name: str, data: bytes, expected: bytes | None) -> bool:
        path = self.path / name
        make_folder(path.parent)
        with (path.parent / f".{path.name}.lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (path.read_bytes() if path.exists() else None) != expected:
                return False
            self.write(name, data)
        return True

    def size(self, name: str) -> int | None:
        try:
            return (self.path / name).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def list(self, prefix: str = "") -> Iterator[Stored]:
        top = self.path / prefix.rpartition("/")[0]
        for folder, _, names in os.walk(top):
            for file in names:
                path = Path(folder) / file
                name = path.relative_to(self.path).as_posix()
                with suppress(FileNotFoundError):
                    if name.startswith(prefix):
                        found = path.stat()
                        yield Stored(name, found.st_size, found.st_mtime_ns // 1000)

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def sync(self, names: Iterable[str]) -> None:
        folders = set()
        for name in names:
            with suppress(FileNotFoundError):
                sync_file(self.path / name)
                folders.add((self.path / name).parent)
        for folder in folders:
            sync_folder(folder)

    @contextmanager
    def _beside(self, name: str, data: bytes) -> Iterator[tuple[Path, Path]]:
        """A durable file with the data that is gone afterwards, whatever happens."""
        path = self.path / name
        make_folder(path.parent)
        beside = path.parent / f".{new_id()}.part"
        try:
            write_durably(beside, data)
            yield beside, path
        finally:
            beside.unlink(missing_ok=True)
