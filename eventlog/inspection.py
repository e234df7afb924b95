"""What an operator may see of a log: its topics, its readers, and every record with what is wrong with it.

Nothing is made and nothing is changed by looking. Backends: `eventlog.sqlite_inspection`, `eventlog.kafka_inspection`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from schemas.envelope import Record
from schemas.errors import ConfigError
from schemas.settings import Settings


class TopicRow(NamedTuple):
    topic: str
    partitions: int
    retention: str
    """`unlimited`, or for how long and how much."""


class PartitionRow(NamedTuple):
    topic: str
    partition: int
    start: int
    """Offset of the first record that is still there."""
    end: int
    """Offset of the next record."""
    size_bytes: int | None
    """On the disk; null where the backend does not know it by partition."""


class GroupRow(NamedTuple):
    group: str
    topic: str
    partition: int
    committed: int
    lag: int
    members: int
    """Living members of the whole group."""


class Hole(NamedTuple):
    """Offsets that hold no record."""

    first: int
    last: int
    kind: str
    """`trimmed`, `transaction`, `compacted`; `missing` is a loss as far as can be seen."""
    detail: str


class Scanned(NamedTuple):
    record: Record
    damage: str = ""
    """Why the record is not what was written, where the backend can tell."""


class Inspector(Protocol):
    exactly_once: bool
    """Whether the backend itself refuses a second event of one id."""

    def about(self) -> dict[str, str]:
        """Backend, identity, place, and what else there is to say of the whole."""
        ...

    def topics(self) -> list[TopicRow]: ...

    def partitions(self) -> list[PartitionRow]: ...

    def groups(self) -> list[GroupRow]: ...

    def faults(self) -> Iterator[str]:
        """What is wrong with the store itself, whatever the records say."""
        ...

    def scan(self, row: PartitionRow) -> Iterator[Scanned | Hole]:
        """All of a partition in the order of offsets. Raises LogError where it cannot be read on."""
        ...

    def close(self) -> None: ...


def inspect_log(settings: Settings) -> Inspector:
    """Raises NotFoundError if no log is there."""
    if settings.log == "sqlite":
        from eventlog.sqlite_inspection import SqliteInspector

        return SqliteInspector(Path(settings.home) / "log.db")
    if settings.log.startswith("kafka://"):
        from eventlog.kafka_inspection import KafkaInspector

        return KafkaInspector(settings.log, Path(settings.home))
    raise ConfigError("unknown kind of log", where="setting `log`", value=settings.log,
                      hint="use `sqlite` or `kafka://host:port[,host:port]`")
