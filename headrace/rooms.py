"""Opens the rooms of one home, each when it is first asked for, and closes them together."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from schemas.errors import NotFoundError, UserError
from schemas.settings import FILE_NAME, Settings

if TYPE_CHECKING:
    from artifacts.store import ArtifactStore
    from eventlog.log import EventLog
    from lake.lake import Lake
    from sandboxes.sandbox import Backend
    from verifiers.judges import Judges

_MARK = ".headrace-home"
_OURS = (_MARK, "log.db", "kafka.json", "lake/events/_delta_log", "dagster/dagster.yaml")
"""Any of them makes a folder a home."""
_WELCOME = frozenset({FILE_NAME, "lost+found"})


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
        for name in ("judges", "backend", "log"):
            if name in self.__dict__:
                self.__dict__[name].close()

    def require(self) -> Rooms:
        """Readers of a home that nobody filled get a clear error, and nothing is made there."""
        if not (self.home / "lake").exists() and not self.settings.lake:
            if (self.home / "log.db").exists():
                raise NotFoundError("there is a log here, but no lake", where=str(self.home),
                                    hint="`headrace sink --until-idle` writes the lake from the log")
            raise NotFoundError(
                "nothing was recorded here yet",
                where=str(self.home),
                hint="start with `headrace demo`, or name another --home",
            )
        return self

    def make_home(self) -> Rooms:
        """The home, made if need be. A folder that holds something else is not littered."""
        try:
            self.home.mkdir(parents=True, exist_ok=True)
            if stranger := self._stranger():
                raise UserError(
                    "this folder holds something else and was never a home",
                    where=str(self.home),
                    value=stranger,
                    hint="name a new or an empty folder as --home",
                )
            (self.home / _MARK).touch()
            probe = self.home / ".writable"
            probe.touch()
            probe.unlink()
        except OSError as wrong:
            raise UserError(
                f"home cannot be written ({wrong.strerror})", where=str(self.home), hint="choose a writable --home"
            ) from None
        return self

    def matched(self) -> Rooms:
        """Log and lake belong together: found out before anything is written to either."""
        self.lake.bind(self.log.identity)
        return self

    def _stranger(self) -> str | None:
        """The name of a file that is not ours; None in an empty folder and in a home."""
        if any((self.home / ours).exists() for ours in _OURS):
            return None
        names = sorted({path.name for path in self.home.iterdir()} - _WELCOME)
        return names[0] if names and _MARK not in names else None  # Another process may make it meanwhile.

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

    @cached_property
    def judges(self) -> Judges:
        from verifiers import registry
        from verifiers.judges import Judges

        registry.use_files(self.settings.verifiers)
        return Judges(self.settings, self.artifacts, self.settings.verify_workers)
