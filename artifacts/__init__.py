"""The content-addressed store for large values: files, workspaces, submissions, evidence, batches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from artifacts.store import ArtifactStore
    from schemas.settings import Settings


def open_store(settings: Settings) -> ArtifactStore:
    """The store that the settings name: a directory, by default `artifacts/` in the home."""
    from artifacts.store import DirectoryStore

    return DirectoryStore(Path(settings.artifacts) if settings.artifacts else Path(settings.home) / "artifacts")
