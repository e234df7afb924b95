"""The resource `headrace`: from configuration to the rooms of one home."""

# Dagster reads annotations at run time: no `from __future__ import annotations` here.

from typing import Any

import dagster as dg
import msgspec
from pydantic import Field

from pipelines.rooms import Rooms, open_rooms
from schemas.settings import Settings, resolve


class HeadraceResource(dg.ConfigurableResource[Rooms]):
    """Without configuration: the settings as the command line resolves them (file and HEADRACE_... variables)."""

    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings that beat file and environment, by name."""

    def open(self) -> Rooms:
        return open_rooms(resolve(self.settings).settings)


def resource_for(settings: Settings) -> HeadraceResource:
    """The resource of exactly these settings, whatever the environment says."""
    return HeadraceResource(settings=msgspec.to_builtins(settings))
