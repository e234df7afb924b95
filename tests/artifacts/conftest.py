from __future__ import annotations

from pathlib import Path

import pytest

from artifacts.folder import Folder, open_folder

STORAGES = ["directory", "s3"]


@pytest.fixture(params=STORAGES)
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a folder may be, in each kind of storage."""
    if request.param == "s3":
        return f"{request.getfixturevalue('bucket')}/some/prefix"
    return str(tmp_path / "söme folder" / "prefix")


@pytest.fixture
def folder(location: str) -> Folder:
    return open_folder(location)
