"""The lake: Delta tables that the log is copied into exactly once, and DuckDB views over one snapshot of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from schemas.errors import ConfigError

if TYPE_CHECKING:
    from artifacts.store import ArtifactStore
    from lake.lake import Lake
    from schemas.settings import Settings


def open_lake(settings: Settings, artifacts: ArtifactStore) -> Lake:
    """The lake that the settings name: a directory, by default `lake/` in the home. Nothing is made before the first
    commit, so an empty lake can be read."""
    from lake.lake import Lake

    if "://" in settings.lake:
        raise ConfigError("the lake lies in a local directory", where="setting `lake`", value=settings.lake,
                          hint="leave it empty for `lake/` in the home")
    root = Path(settings.lake) if settings.lake else Path(settings.home) / "lake"
    return Lake(root.absolute(), artifacts, settings.lake_memory_mb)
