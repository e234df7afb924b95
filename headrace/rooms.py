"""Opens the rooms of one home, each when it is first asked for, and closes them together."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from schemas.errors import NotFoundError, UserError
from schemas.settings import Settings

if TYPE_CHECKING:
    from artifacts.store import ArtifactStore
    from eventlog.log import EventLog
    from lake.lake import Lake
    from sandboxes.sandbox import Backend


class Rooms:
    """Use as a context manager."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.home = Path(settings.home)

    def __enter__(self) -> Rooms:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in ("backend", "log"):
            if name in self.__dict__:
                self.__dict__[name].close()

    def require(self) -> Rooms:
        """Readers of a home that nobody filled get a clear error, and nothing is made there."""
        if not (self.home / "lake").exists() and not self.settings.lake:
            raise NotFoundError(
                "nothing was recorded here yet",
                where=str(self.home),
                hint="start with `headrace demo`, or name another --home",
            )
        return self

    def make_home(self) -> Rooms:
        try:
            self.home.mkdir(parents=True, exist_ok=True)
            probe = self.home / ".writable"
            probe.touch()
            probe.unlink()
        except OSError as wrong:
            raise UserError(
                f"home cannot be written ({wrong.strerror})", where=str(self.home), hint="choose a writable --home"
            ) from None
        return self

    @cached_property
    def log(self) -> EventLog:
        from eventlog import open_log

        return open_log(self.settings)

    @cached_property
    def artifacts(self) -> ArtifactStore:
        from artifacts import open_store

        return open_store(self.settings)

    @cached_property
    def lake(self) -> Lake:
        from lake import open_lake

        return open_lake(self.settings, self.artifacts)

    @cached_property
    def backend(self) -> Backend:
        from sandboxes import open_backend

        return open_backend(self.settings, self.artifacts)
