"""A table's log as readers and writers follow it: each entry is read once, and a commit is one new entry.

The entry of a version is made only if there is none yet (`Folder.create`), durably: that is the compare-and-set of
every commit. Opening, checkpoints and everything about columns are the library's; the steps from one version to the
next are taken here, because the library lists the whole log at every one of them, so that they cost the more the more
commits there ever were (format: Delta transaction log protocol).
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from artifacts.folder import Folder
from lake.durable import Durable
from lake.files import LiveFile, live_files
from lake.tables import (
    identity_in,
    identity_of,
    open_table,
    refuse_foreign,
    refuse_newer_protocol,
    table_exists,
    write_checkpoint,
)
from lake.transactions import LOG, actions_of, entry_name, first_line, read_transactions
from schemas.errors import CommitConflictError, HeadraceError, LakeError

log = logging.getLogger("headrace.lake")
CHECKPOINT_INTERVAL = 100
_ATTEMPTS = 100
"""Commits of others that may come before ours without touching what it builds on."""
_LOOKS, _LOOK_AGAIN_S = 4, 0.05


class TableLog:
    """The table at `version`. Not thread-safe. Raises LakeError where it cannot be read."""

    def __init__(self, root: Folder, name: str) -> None:
        self.name, self.folder, self._root = name, root.at(name), root
        self._log = self.folder.at(LOG)
        handle = open_table(root, name)
        self.version: int = handle.version()
        self.identity = identity_of(handle)
        self.columns = {field.name for field in handle.schema().fields}
        self._files = {file.path: file for file in live_files(handle)}
        self.transactions = dict(read_transactions(self._log, self.version).entries)
        self._at = self._told_at()
        """Of the newest commit, in milliseconds."""
        Durable(self.folder).reach(self.version)
        self.follow()

    @property
    def files(self) -> list[LiveFile]:
        """Oldest first."""
        return list(self._files.values())

    def there(self) -> bool:
        """Whether this table is still the one that was opened."""
        try:
            return self._log.size(entry_name(self.version)) is not None
        except OSError as wrong:
            raise LakeError(f"table cannot be read ({first_line(wrong)})", where=self.folder.url) from None

    def follow(self) -> bool:
        """Go on to the present; whether there was anything new."""
        before = self.version
        while True:
            name = entry_name(self.version + 1)
            try:
                self._apply(self._log.read(name))
            except FileNotFoundError:
                return self.version > before
            except (OSError, ValueError, KeyError, TypeError) as wrong:
                raise LakeError(f"commit of a table cannot be read ({first_line(wrong)})",
                                where=f"{self._log.url}/{name}",
                                hint="`headrace lake doctor` says what to do") from None
            self.version += 1

    def commit(self, actions: Sequence[dict[str, Any]], transactions: Mapping[str, int]) -> None:
        """One commit on what is known of the table now. Others may have come before, if they touched neither these
        application transactions nor a file that is removed here.

        Raises CommitConflictError if they did, and LakeError if the table is gone or the outcome is unknown.
        """
        if not self.there():
            raise LakeError("the table is gone", where=self.folder.url,
                            hint="`headrace lake rebuild` builds the tables anew from the log")
        known = {name: self.transactions.get(name) for name in transactions}
        removed = {action["remove"]["path"] for action in actions if "remove" in action}
        unseen = 0
        for _ in range(_ATTEMPTS):
            entry = _entry(actions, transactions, max(self._at, time.time_ns() // 1_000_000))
            if self._create(entry):
                self._apply(entry)
                self.version += 1
                return self._checkpoint()
            if not self.follow():  # Storage may refuse a write that met another one, or not show yet what it has.
                if unseen == _LOOKS:
                    raise LakeError("an entry of the table's log is there and is not", where=self.folder.url,
                                    value=self.version + 1, hint="is the storage consistent? nothing was committed")
                unseen += 1
                time.sleep(_LOOK_AGAIN_S * unseen)
                continue
            if {name: self.transactions.get(name) for name in transactions} != known or removed - self._files.keys():
                break
        raise CommitConflictError("another writer committed first", where=self.folder.url, value=self.version)

    def _create(self, entry: bytes) -> bool:
        try:
            return self._log.create(entry_name(self.version + 1), entry)
        except OSError as wrong:
            raise LakeError(f"commit failed ({first_line(wrong)})", where=self.folder.url,
                            hint="is the disk full or read-only, or the storage down?") from None

    def _told_at(self) -> int:
        try:
            newest = self._log.read(entry_name(self.version))
        except OSError:  # Who needs the entry itself says so.
            return 0
        with suppress(ValueError):
            return max((int(action["commitInfo"].get("timestamp") or 0) for action in actions_of(newest)
                        if "commitInfo" in action), default=0)
        return 0

    def _apply(self, entry: bytes) -> None:
        for action in actions_of(entry):
            if info := action.get("commitInfo"):
                self._at = max(self._at, int(info.get("timestamp") or 0))
            elif txn := action.get("txn"):
                self.transactions[txn["appId"]] = txn["version"]
            elif add := action.get("add"):
                rows = json.loads(add.get("stats") or "{}").get("numRecords")
                self._files[add["path"]] = LiveFile(add["path"], add["size"], rows)
            elif remove := action.get("remove"):
                self._files.pop(remove["path"], None)
            elif changed := action.get("metaData"):
                refuse_foreign(changed["configuration"], self.name, self.folder.url)
                self.identity = identity_in(changed["configuration"])
                self.columns = {field["name"] for field in json.loads(changed["schemaString"])["fields"]}
            elif protocol := action.get("protocol"):
                refuse_newer_protocol(protocol, self.folder.url)

    def _checkpoint(self) -> None:
        """So that the table opens fast. It is no part of the commit."""
        if self.version % CHECKPOINT_INTERVAL == 0:
            try:
                write_checkpoint(self._root, self.name)
            except HeadraceError as wrong:
                log.warning("no checkpoint this time: %s", wrong)


def open_log(root: Folder, name: str) -> TableLog | None:
    """None while there is no such table."""
    return TableLog(root, name) if table_exists(root, name) else None


def _entry(actions: Sequence[dict[str, Any]], transactions: Mapping[str, int], now: int) -> bytes:
    """Times of commits never go back, whatever the clock does: `--as-of` a time looks them up in order."""
    info = {"timestamp": now, "operation": "WRITE", "operationParameters": {"mode": "Append"},
            "engineInfo": "headrace"}
    said = [{"txn": {"appId": name, "version": version, "lastUpdated": now}} for name, version in transactions.items()]
    return b"".join(json.dumps(action).encode() + b"\n" for action in [{"commitInfo": info}, *said, *actions])
