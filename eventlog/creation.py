"""Making a log's topics on purpose, before anything writes: what was there stays as it is and is told apart."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from eventlog import open_log
from eventlog.inspection import TopicRow, inspect_log
from schemas.errors import ConfigError, NotFoundError
from schemas.settings import Settings
from schemas.topics import partitions_of


class Made(NamedTuple):
    topic: TopicRow
    made: bool
    wanted_partitions: int


def create(settings: Settings, partitions: int | None = None, retention_days: float | None = None) -> list[Made]:
    """The topics after the call. Partition counts and retention are those of topics made now; others keep their own."""
    if retention_days is not None and settings.log == "sqlite":
        raise ConfigError("the embedded log keeps everything", where="--retention-days", value=retention_days,
                          hint="leave it out, or use `--log kafka://host:port`")
    wanted = settings.log_partitions if partitions is None else partitions
    before = _topics(settings)
    open_log(msgspec.structs.replace(settings, log_partitions=wanted)).close()
    made = [row.topic for row in _topics(settings) if row.topic not in {there.topic for there in before}]
    if retention_days is not None and made:
        from eventlog.kafka_inspection import KafkaInspector

        inspector = KafkaInspector(settings.log, Path(settings.home))
        try:
            inspector.keep_for(made, retention_days)
        finally:
            inspector.close()
    return [Made(row, row.topic in made, partitions_of(row.topic, wanted)) for row in _topics(settings)]


def _topics(settings: Settings) -> list[TopicRow]:
    try:
        inspector = inspect_log(settings)
    except NotFoundError:
        return []
    try:
        return inspector.topics()
    finally:
        inspector.close()
