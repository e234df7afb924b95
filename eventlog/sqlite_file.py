"""The file of the SQLite log: made whole or not at all, opened with checks, its failures told as LogErrors.

Invariants: WAL with `synchronous=FULL`, so a commit that returned is on the disk before any reader sees it; no
automatic checkpoints (`eventlog.sqlite_checkpoint` does them); the identity is written once, when the file is made.
The database file is touched through SQLite alone: POSIX drops a process's locks on a file when any descriptor of it
is closed, so a plain `open` here would unlock it under a running log.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import re
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import apsw
import msgspec

from schemas.envelope import Event
from schemas.errors import HeadraceError, LogDamagedError, LogError, UnavailableError
from schemas.files import sync_folder
from schemas.topics import TOPICS, partitions_of

FORMAT = 4
"""Layout of the tables; a file of a higher format belongs to a newer release. 2: `events.checksum`, 3: it covers the
event's place, 4: it is taken over the row as MessagePack."""
APPLICATION_ID = 0x48524C47
BUSY_S = 30.0
PAGE_BYTES = 8192
_FULL_BYTES = 64 << 10
_FIRST_GOOD_SQLITE = (3, 51, 3)
_NETWORK_FILE_SYSTEMS = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "lustre", "gpfs", "beegfs", "ocfs2", "gfs2",
    "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "fuse.juicefs"})
_SCHEMA = """
create table meta(name text primary key, value text not null) without rowid;
create table topics(number integer primary key, name text not null unique, partitions integer not null);
create table heads(topic integer not null, partition integer not null, next_offset integer not null,
                   primary key (topic, partition)) without rowid;
create table events(topic integer not null, partition integer not null, offset integer not null, id text not null,
                    source text not null, type text not null, subject text not null, sequence integer not null,
                    time_us integer not null, data blob not null, checksum integer);
create unique index events_by_offset on events(topic, partition, offset);
create unique index events_by_id on events(topic, id);
create table groups(name text primary key, generation integer not null) without rowid;
create table members(grp text not null, member text not null, session text not null, topics text not null,
                     renewed_us integer not null, lease_us integer not null, primary key (grp, member)) without rowid;
create table owners(grp text not null, topic text not null, partition integer not null, member text not null,
                    primary key (grp, topic, partition)) without rowid;
create table commits(grp text not null, topic text not null, partition integer not null, next_offset integer not null,
                     primary key (grp, topic, partition)) without rowid;
"""


def prepare(path: Path, partitions: int) -> None:
    """Check the library and the place, and make the file if there is none."""
    found = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if found < _FIRST_GOOD_SQLITE:
        raise UnavailableError("this build of SQLite can corrupt a log that several processes write",
                               where="package apsw", value=apsw.sqlite_lib_version(), hint="pip install 'apsw>=3.51.3'")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _refuse_network(path.parent)
        if not path.exists():
            with locked(path, wait=True):
                if not path.exists():
                    _refuse_orphan(path)
                    _create(path, partitions)
        elif path.stat().st_size == 0:
            raise empty(path)
    except OSError as wrong:
        raise UnavailableError(f"log cannot be made ({wrong.strerror})", where=str(path),
                               hint="choose a writable --home on a local disk") from None


@contextlib.contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the log's advisory lock (a file beside it); gives False if another has it and `wait` is off."""
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            got = True
        except BlockingIOError:
            got = False
        yield got
    finally:
        os.close(descriptor)


def connect(path: Path, *, read_only: bool = False, busy_s: float = BUSY_S) -> apsw.Connection:
    """A connection with the log's settings. Raises LogError for a file that is no log of this release."""
    with told(path):
        connection = apsw.Connection(os.path.abspath(path), flags=apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_handler(_BusyHandler(busy_s))
        for name, value in (("synchronous", "full"), ("wal_autocheckpoint", 0), ("cache_size", -16384)):
            connection.pragma(name, value)
        if read_only:
            connection.pragma("query_only", 1)
        elif connection.readonly("main"):
            raise LogError("log file is read-only", where=str(path), hint="make it writable, or choose another --home")
        return connection


def check(connection: apsw.Connection, path: Path) -> None:
    """Once per opened log: is it ours, and of a release that we can read?"""
    with told(path):
        application, form = (connection.pragma(name) for name in ("application_id", "user_version"))
        if application != APPLICATION_ID:
            raise LogError("file is not a log of this program", where=str(path), hint="choose another --home")
        if form < 2:
            take_over(path)
        if form > FORMAT:
            raise LogError("log was written by a newer release", where=str(path), value=f"format {form}",
                           hint=f"this release reads format {FORMAT}: upgrade it, or choose another --home")


def topics_of(connection: apsw.Connection, path: Path) -> list[tuple[int, str, int]]:
    """Number, name and partition count of each topic. Raises LogDamagedError if these, or where a partition ends, are
    not what this program writes."""
    with told(path):
        topics: list[Any] = connection.execute("select number, name, partitions from topics order by number").fetchall()
        heads = connection.execute("select topic, partition, next_offset from heads").fetchall()
    for number, name, count in topics:
        if type(number) is not int or name not in TOPICS or type(count) is not int or count < 1:
            raise damaged(path, "no such topic", (number, name, count))
    for head in heads:
        if any(type(value) is not int or value < 0 for value in head):
            raise damaged(path, "no such partition or end of one", head)
    return topics


def checksum(row: tuple[Any, ...]) -> int:
    """CRC-32 of all that a row of `events` holds: its place (topic's number, partition, offset), then the event. SQLite
    itself notices damage of its pages' structure, not of what is in them."""
    return crc32(msgspec.msgpack.encode(row))


def earlier_checksums(event: Event, place: tuple[int, int, int]) -> tuple[int, int]:
    """Those of format 3 and of format 2, which left out the place."""
    names = f"{event.id}\0{event.source}\0{event.type}\0{event.subject}\0{event.sequence}\0{event.time_us}"
    placed = f"{names}\0{place[0]}\0{place[1]}\0{place[2]}"
    return crc32(event.data, crc32(placed.encode())), crc32(event.data, crc32(names.encode()))


def take_over(path: Path) -> None:
    """Make a file of an older release one of this format, before anything is written to it. Events that are there keep
    the checksum they have, if any; the older release reads on no more."""
    with locked(path, wait=True), contextlib.closing(connect(path)) as connection:
        connection.execute("begin immediate")
        if connection.pragma("user_version") == 1:
            connection.execute("alter table events add column checksum integer")
        if connection.pragma("user_version") < FORMAT:
            connection.pragma("user_version", FORMAT)
        connection.execute("commit")


class OpenFiles:
    """The log's files as a writer opened them: it would write on into files that somebody removed or replaced."""

    def __init__(self, path: Path) -> None:
        """Right after the file was opened. Its write-ahead log is there from the first commit on."""
        self._path = path
        self._names = (os.fspath(path), f"{path}-wal")
        self._opened = _identities(self._names[:1])

    def check(self) -> None:
        """After a commit, when both are there. Raises LogError if they are not those that were opened any more."""
        found = _identities(self._names)
        if len(self._opened) == 1 and found[:1] == self._opened:
            self._opened = found
        if len(found) < len(self._names) or found != self._opened:
            raise LogError("log file was removed or replaced while this process writes it", where=str(self._path),
                           hint="end the processes of this home, put the file back and start them again")


def _identities(names: Iterable[str]) -> list[tuple[int, int]]:
    """Empty where one is gone."""
    try:
        return [(stat.st_dev, stat.st_ino) for stat in map(os.stat, names)]
    except FileNotFoundError:
        return []


def told_as(wrong: apsw.Error, path: Path) -> HeadraceError:
    """What an SQLite failure means for the log."""
    where = str(path)
    match wrong:
        case apsw.NotADBError() | apsw.CorruptError() | apsw.FormatError():
            return LogDamagedError(f"log file is corrupt ({wrong})", where=where, hint=_restore_hint(path))
        case apsw.IOError() if not _is_full(path):
            return LogError(f"disk failed under the log ({wrong})", where=where,
                            hint="check the disk and its limits; nothing that was acknowledged is lost")
        case apsw.IOError() | apsw.FullError():
            return LogError("disk is full", where=where, hint="free space; nothing that was acknowledged is lost")
        case apsw.ReadOnlyError():
            return LogError("log file is read-only", where=where, hint="make it writable, or choose another --home")
        case apsw.CantOpenError() | apsw.PermissionsError() | apsw.AuthError():
            return UnavailableError(f"log file cannot be opened ({wrong})", where=where,
                                    hint="check that the home is a writable folder on a local disk")
        case apsw.BusyError() | apsw.LockedError():
            return LogError(f"another process kept the log locked for {BUSY_S:.0f} s", where=where,
                            hint="find the process that holds it: `fuser -v` on the file")
    return LogError(f"log failed ({type(wrong).__name__}: {wrong})", where=where)


def _is_full(path: Path) -> bool:
    """SQLite calls it an I/O error where there is no room for the index of the write-ahead log."""
    try:
        free = os.statvfs(path.parent)
    except OSError:
        return False
    return free.f_bavail * free.f_frsize < _FULL_BYTES


@contextlib.contextmanager
def told(path: Path) -> Iterator[None]:
    try:
        yield
    except apsw.Error as wrong:
        raise told_as(wrong, path) from None
    except UnicodeDecodeError as wrong:
        raise damaged(path, f"text is not UTF-8: {wrong.reason}", wrong.object[:80]) from None


def file_system_of(path: str, mounts: str) -> str:
    """Type of the file system that holds an absolute path, from the text of /proc/self/mountinfo; "" if unknown."""
    found, longest = "", -1
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
        if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= longest:
            found, longest = after.split(" ")[0], len(point)
    return found


def _refuse_network(folder: Path) -> None:
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return  # Not Linux: there is no list to look at.
    kind = file_system_of(str(folder.resolve()), mounts)
    if kind in _NETWORK_FILE_SYSTEMS:
        raise UnavailableError("the embedded log needs a local disk, not a network file system", where=str(folder),
                               value=kind, hint="choose a --home on a local disk, or `--log kafka://host:port`")


def _refuse_orphan(path: Path) -> None:
    """A new file would take the pages of the lost one for its own."""
    if Path(f"{path}-wal").exists():
        raise LogDamagedError("log file is gone, but its write-ahead log is there", where=str(path),
                              hint=_restore_hint(path))


def _create(path: Path, partitions: int) -> None:
    """Under the lock: written beside, then renamed, so a log that exists is complete."""
    for left in path.parent.glob(f"{path.name}.*.part*"):
        left.unlink()
    beside = path.with_name(f"{path.name}.{uuid.uuid4()}.part")
    with told(path):
        connection = apsw.Connection(os.path.abspath(beside))
        for name, value in (("page_size", PAGE_BYTES), ("journal_mode", "wal"), ("synchronous", "full")):
            connection.pragma(name, value)
        connection.execute("begin")
        connection.execute(_SCHEMA)
        connection.execute("insert into meta values ('identity', ?)", (str(uuid.uuid4()),))
        for number, topic in enumerate(TOPICS):
            count = partitions_of(topic, partitions)
            connection.execute("insert into topics values (?, ?, ?)", (number, topic, count))
            connection.executemany("insert into heads values (?, ?, 0)", [(number, part) for part in range(count)])
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", FORMAT)
        connection.execute("commit")
        connection.close()
    beside.rename(path)
    sync_folder(path.parent)


def damaged(path: Path, what: str, value: object) -> LogDamagedError:
    return LogDamagedError(f"log file is damaged ({what})", where=str(path), value=value, hint=_restore_hint(path))


def empty(path: Path) -> LogDamagedError:
    return LogDamagedError("log file is empty: it was truncated", where=str(path), hint=_restore_hint(path))


def _restore_hint(path: Path) -> str:
    return f"keep a copy of {path.name}* for inspection and restore a backup; the lake still holds what it read"


class _BusyHandler:
    """Waits a millisecond or so at a time: SQLite's own back-off sleeps up to 100 ms, far longer than a commit."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since = 0.0

    def __call__(self, tries: int) -> bool:
        now = time.monotonic()
        if tries == 0:
            self._since = now
        if now - self._since > self._limit_s:
            return False
        time.sleep(random.uniform(0.0003, 0.0015))
        return True
