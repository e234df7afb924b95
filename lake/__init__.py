"""The lake: Delta tables that the log is copied into exactly once, and DuckDB views over one snapshot of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from artifacts.store import ArtifactStore
    from lake.lake import Lake
    from schemas.settings import Settings

_MISREAD = re.compile(r"%[0-9A-Fa-f]{2}|[\\\x00-\x1f\x7f]")


def open_lake(settings: Settings, artifacts: ArtifactStore) -> Lake:
    """The lake that the settings name: a directory, by default `lake/` in the home, or `s3://bucket/prefix`. Nothing is
    made before the first commit, so an empty lake can be read. Raises ConfigError for a path that cannot hold one."""
    from artifacts.folder import open_folder
    from lake.lake import Lake
    from schemas.errors import ConfigError

    folder = open_folder(settings.lake or Path(settings.home) / "lake")
    if misread := _MISREAD.search(folder.url):
        raise ConfigError(f"a lake cannot lie where {misread[0]!r} stands in the path: the library that opens its "
                          "tables takes it for something else", value=folder.url, hint="choose another --home")
    spill = Path(settings.home).absolute() / ".spill"
    return Lake(folder, artifacts, spill, settings.lake_memory_mb)
