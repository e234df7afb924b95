"""A table as its entries alone tell it, from the first to the newest: what its checkpoints must agree with, for they
are only a quicker way to the same. For maintenance."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from lake.files import DIGEST_TAG, live_files
from lake.transactions import LOG, read_transactions

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from artifacts.folder import Folder

_NAMED = 3
"""Files, transactions or properties that are named where two accounts differ."""


class Named(NamedTuple):
    """A data file as its entry tells it; the digest is of its bytes, empty where an older release wrote it."""

    size: int
    rows: int | None
    digest: str


class Told:
    """Feed it the actions of every entry in order."""

    def __init__(self) -> None:
        self.files: dict[str, Named] = {}
        self.once: dict[str, int] = {}
        """Files that were in the table and are not any more (readers may still hold them), and since when, in
        microseconds."""
        self.transactions: dict[str, int] = {}
        self.properties: dict[str, str] = {}

    def add(self, actions: Iterable[dict[str, Any]]) -> None:
        for action in actions:
            if add := action.get("add"):
                rows = json.loads(add.get("stats") or "{}").get("numRecords")
                self.files[add["path"]] = Named(add["size"], rows, (add.get("tags") or {}).get(DIGEST_TAG) or "")
            elif remove := action.get("remove"):
                self.files.pop(remove["path"], None)
                self.once[remove["path"]] = 1000 * int(remove.get("deletionTimestamp") or 0)
            elif txn := action.get("txn"):
                self.transactions[txn["appId"]] = txn["version"]
            elif changed := action.get("metaData"):
                self.properties = changed["configuration"]

    def against(self, folder: Folder, handle: DeltaTable) -> Iterator[str]:
        """How the table that readers open, from its newest checkpoint on, differs from this. Raises LakeError."""
        opened = {file.path: (file.size, file.rows) for file in live_files(handle)}
        yield from _differences("file", {path: named[:2] for path, named in self.files.items()}, opened)
        found = read_transactions(folder.at(LOG), handle.version()).entries
        yield from _differences("transaction", self.transactions, found)
        yield from _differences("property", self.properties, dict(handle.metadata().configuration))


def _differences(kind: str, told: dict[str, Any], opened: dict[str, Any]) -> Iterator[str]:
    differing = sorted(name for name in told.keys() | opened.keys() if told.get(name) != opened.get(name))
    for name in differing[:_NAMED]:
        yield (f"{kind} {name} is {told.get(name, 'not there')} by the entries, {opened.get(name, 'not there')} by the "
               "checkpoint")
    if len(differing) > _NAMED:
        yield f"and so do {len(differing) - _NAMED} more of these"
