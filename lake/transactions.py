"""Application transactions of a Delta table: how far each topic-partition has been written.

The library answers for one application id at a time; a reader needs all of them, also of partitions it never heard
of. They stand in the table's log: the newest checkpoint's `txn` column, then the commits after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from artifacts.folder import Folder
from eventlog.log import TopicPartition
from schemas.errors import LakeError

LOG = "_delta_log"
_TOGETHER = 8
_TXN = b'{"txn":'


def entry_name(version: int) -> str:
    """Of a commit, in the folder of the table's log."""
    return f"{version:020d}.json"


def actions_of(entry: bytes) -> Iterator[dict[str, Any]]:
    """What an entry of a table's log says. Raises ValueError where it is none."""
    for line in entry.splitlines():
        if line.strip():
            yield json.loads(line)


class Transactions(NamedTuple):
    """All application transactions at one version of the table."""

    version: int
    entries: dict[str, int]


def application(identity: str, partition: TopicPartition) -> str:
    return f"{identity}/{partition[0]}/{partition[1]}"


def promise(identity: str, table: str, partition: TopicPartition) -> str:
    """The transaction by which `events` says how far another table is: what a lost table would have held."""
    return f"{application(identity, partition)}/{table}"


def promises_of(found: Mapping[str, int], identity: str) -> dict[str, dict[TopicPartition, int]]:
    """Next offset by topic-partition that `events` says of each other table."""
    promises: dict[str, dict[TopicPartition, int]] = {}
    for name, version in found.items():
        owner, _, rest = name.partition(f"{identity}/")
        parts = rest.rsplit("/", 2)
        if not owner and len(parts) == 3 and parts[1].isdigit():
            promises.setdefault(parts[2], {})[parts[0], int(parts[1])] = version
    return promises


def positions_of(found: Mapping[str, int], identity: str) -> dict[TopicPartition, int]:
    """Next offset by topic-partition, of the log with this identity."""
    positions: dict[TopicPartition, int] = {}
    for name, version in found.items():
        owner, _, rest = name.partition(f"{identity}/")
        topic, _, number = rest.rpartition("/")
        if not owner and topic and number.isdigit():
            positions[topic, int(number)] = version
    return positions


@contextmanager
def told(what: str, where: str, hint: str = "") -> Iterator[None]:
    """Errors of the library and of storage as LakeErrors."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError) as wrong:
        raise LakeError(f"{what} ({first_line(wrong)})", where=where, hint=hint) from None


def read_transactions(log_folder: Folder, version: int, known: Transactions | None = None) -> Transactions:
    """The transactions at `version` or, if a checkpoint was just written, a little later. `known` saves work."""
    if known is None or known.version > version:
        known = _from_checkpoint(log_folder) or Transactions(-1, {})
    if known.version >= version:
        return known
    entries = dict(known.entries)
    for found in _of_commits(log_folder, range(known.version + 1, version + 1)):
        entries.update(found)
    return Transactions(version, entries)


def _of_commits(log_folder: Folder, numbers: range) -> Iterator[dict[str, int]]:
    """In their order. Many at once are read together: each costs a round trip in remote storage."""
    names = map(entry_name, numbers)
    if len(numbers) < _TOGETHER:
        yield from (_of_commit(log_folder, name) for name in names)
        return
    with ThreadPoolExecutor(_TOGETHER) as pool:
        yield from pool.map(partial(_of_commit, log_folder), names)


def _of_commit(log_folder: Folder, name: str) -> dict[str, int]:
    found = {}
    try:
        for line in log_folder.read(name).splitlines():
            if line.startswith(_TXN):
                action = json.loads(line)["txn"]
                found[action["appId"]] = action["version"]
    except (OSError, ValueError, KeyError) as wrong:
        raise LakeError(f"commit of a table cannot be read ({wrong})", where=f"{log_folder.url}/{name}") from None
    return found


def _from_checkpoint(log_folder: Folder) -> Transactions | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        version = json.loads(log_folder.read("_last_checkpoint"))["version"]
        with log_folder.reader(f"{version:020d}.checkpoint.parquet") as file:
            column = pq.ParquetFile(file).read(columns=["txn"]).column("txn")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, pa.ArrowException) as wrong:
        raise LakeError(f"checkpoint of a table cannot be read ({wrong})", where=log_folder.url) from None
    rows = [row for row in column.to_pylist() if row and row["appId"]]
    return Transactions(version, {row["appId"]: row["version"] for row in rows})


def first_line(wrong: BaseException) -> str:
    return str(wrong).splitlines()[0] if str(wrong) else type(wrong).__name__
