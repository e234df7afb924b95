"""Files that must be there after a power cut."""

from __future__ import annotations

import os
from pathlib import Path


def write_durably(path: Path, data: bytes) -> None:
    """A new file with its bytes on disk; its name is safe after `sync_folder`."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_file(path: Path) -> None:
    _sync(path, os.O_RDONLY)


def sync_folder(folder: Path) -> None:
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def make_folder(folder: Path) -> None:
    """With the folders above it; the names of those that were made are on disk."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_tree(root: Path) -> None:
    """Everything below `root`, then the name of `root` itself."""
    for folder, _, names in os.walk(root):
        for name in names:
            sync_file(Path(folder, name))
        sync_folder(Path(folder))
    sync_folder(root.parent)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
