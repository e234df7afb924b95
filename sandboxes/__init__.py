"""Where tools and candidates run: the Sandbox contract, its backends, snapshots, leases and the reaper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from artifacts.store import ArtifactStore
    from sandboxes.sandbox import Backend
    from schemas.settings import Settings

BACKENDS = ("bubblewrap", "docker", "process")


def open_backend(settings: Settings, artifacts: ArtifactStore) -> Backend:
    """The backend that the settings name, proved to run, after the reaper has removed what dead owners left.

    Raises ConfigError for an unknown name and UnavailableError, with the ways on, where the backend cannot run.
    """
    from sandboxes.opening import open_named

    if settings.sandbox_backend == "process":
        from sandboxes.process import warn_once

        warn_once()
    opened = open_named(settings.sandbox_backend, Path(settings.home) / "sandboxes", artifacts)
    if not settings.sandbox_warm:
        return opened
    from sandboxes.pool import Pool

    return Pool(opened, warm=settings.sandbox_warm)


def probe(name: str) -> str | None:
    """Why this backend cannot run here; None if it can. Tries one whole life in a temporary folder."""
    from sandboxes.opening import why_not

    return why_not(name)
