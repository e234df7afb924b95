"""Workspaces as plain folders: snapshots taken and restored without a sandbox."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from artifacts.store import ArtifactStore
from sandboxes.capture import Captured, capture, store
from sandboxes.manifest import RICH_FORMAT, Attribute, Entry, Manifest, encode, load
from sandboxes.restore import Restored, restore

ROOT = Entry(b"", "d", 0o755)


def captured(folder: Path, artifacts: ArtifactStore) -> Captured:
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        found = capture(root, artifacts)
    finally:
        os.close(root)
    store(found, artifacts)
    return found


def taken(folder: Path, artifacts: ArtifactStore) -> str:
    return captured(folder, artifacts).digest


def restored(name: str, artifacts: ArtifactStore, folder: Path) -> Restored:
    return restore(load(name, artifacts), artifacts.get, folder)


def stored(entries: Iterable[Entry], artifacts: ArtifactStore, attributes: Iterable[Attribute] = (),
           form: str = RICH_FORMAT) -> str:
    """A manifest as somebody else might have written it."""
    return artifacts.put(encode(Manifest(form, list(entries), list(attributes)))).digest


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)
