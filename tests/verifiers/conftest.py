from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.verifiers.rig import Rig


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = Rig(tmp_path_factory.mktemp("home"))
    yield rig
    rig.close()
