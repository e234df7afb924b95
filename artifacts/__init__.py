"""The content-addressed store for large values: files, workspaces, submissions, evidence, batches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from artifacts.store import ArtifactStore
    from schemas.settings import Settings


def open_store(settings: Settings) -> ArtifactStore:
    """The store that the settings name: a directory, by default `artifacts/` in the home, or `s3://bucket/prefix`."""
    from artifacts.folder import open_folder
    from artifacts.store import DirectoryStore, FolderStore

    place = settings.artifacts
    if "://" in place:
        return FolderStore(open_folder(place))
    return DirectoryStore(Path(place) if place else Path(settings.home) / "artifacts")
