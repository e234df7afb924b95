"""The log of events, the system of record: one contract (`eventlog.log`), two backends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from schemas.errors import ConfigError

if TYPE_CHECKING:
    from eventlog.log import EventLog
    from schemas.settings import Settings


def open_log(settings: Settings) -> EventLog:
    """The log that the settings name: `sqlite` (home/log.db) or `kafka://host:port[,host:port]`.

    Made with all its topics where it is not there yet. Safe to share between threads; `close` it at the end.
    """
    if settings.log == "sqlite":
        from eventlog.sqlite import SqliteLog

        return SqliteLog(Path(settings.home) / "log.db", settings.log_partitions)
    if settings.log.startswith("kafka://"):
        from eventlog.kafka import KafkaLog

        return KafkaLog(settings.log, Path(settings.home), settings.log_partitions, lake=settings.lake)
    raise ConfigError("unknown kind of log", where="setting `log`", value=settings.log,
                      hint="use `sqlite` or `kafka://host:port[,host:port]`")
