"""The embedded log on a bad day: a full disk, lost files, clocks that step back, many processes at once.

Each time: a clear error, what was acknowledged is there, and the log works again when the cause is gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from eventlog import open_log
from eventlog.inspection import inspect_log
from eventlog.log import EventLog
from eventlog.sqlite import SqliteLog
from eventlog.sqlite_checkpoint import PASSIVE_PAGES
from eventlog.sqlite_file import PAGE_BYTES
from schemas.codec import make_event
from schemas.envelope import MAX_EVENT_BYTES
from schemas.errors import LogDamagedError, LogError, SchemaError, UnavailableError
from schemas.events import CancelRequested, DeadLettered
from schemas.settings import Settings
from schemas.topics import REQUESTS, TRAJECTORIES
from tests.conftest import REPOSITORY
from tests.eventlog.tools import TIMEOUT_S, audited, event, gather, heard, process, read, settle


def fact(number: int, size: int = 10) -> object:
    return make_event(CancelRequested(episode_id=f"e-{number}", reason="x" * size), subject=f"e-{number}", source="w",
                      time_us=1, event_id=f"fact-{number}")


def whole(settings: Settings) -> int:
    """How many events the audit counts in a log without a fault."""
    audit = audited(settings)
    assert audit.faults == 0, audit.examples
    return sum(one.events for one in audit.partitions)


def fill(log: EventLog, start: int = 0, size: int = 20_000) -> tuple[int, str]:
    """Append facts until one is refused: how many were acknowledged, and the refusal."""
    for number in range(start, 10**6):
        try:
            log.append(REQUESTS, [fact(number, size)]).result(TIMEOUT_S)
        except LogError as wrong:
            return number, wrong.paragraph()
    raise AssertionError("the disk never filled up")


# -- a full disk ------------------------------------------------------------------------------------------------------

@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Mounts a file system of so many KiB, or gives the one that is mounted that size."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = []

    def resize(kib: int) -> Path:
        options = f"{'remount,' if mounted else ''}size={kib}k"
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True,
                              text=True, check=False)
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield resize
    if mounted:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def test_disk_that_is_full_in_a_commit_loses_nothing_and_the_log_goes_on(small_disk: Callable[[int], Path]) -> None:
    settings = Settings(home=str(small_disk(2048) / "home"))
    log = open_log(settings)
    written, refusal = fill(log)
    assert written > 10 and "error[log]: disk is full" in refusal and "nothing that was acknowledged is lost" in refusal
    for again in range(3):  # And it stays an error, of this append alone.
        with pytest.raises(LogError, match="disk is full"):
            log.append(REQUESTS, [fact(10**6 + again, 500_000)]).result(TIMEOUT_S)
    records = read(log.subscribe([REQUESTS]), written)
    assert {record.event.id for record in records if record.event} == {f"fact-{number}" for number in range(written)}
    small_disk(16_384)
    log.append(REQUESTS, [fact(written, 20_000)]).result(TIMEOUT_S)
    log.close()
    assert whole(settings) == written + 1


def test_log_on_a_full_disk_can_be_opened_and_read_and_audited(small_disk: Callable[[int], Path]) -> None:
    folder = small_disk(2048)
    settings = Settings(home=str(folder / "home"))
    log = open_log(settings)
    written, _ = fill(log)
    log.close()
    with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    log = open_log(settings)
    read(log.subscribe([REQUESTS]), written)
    with pytest.raises(LogError, match=r"disk (is full|failed)"):
        log.append(REQUESTS, [fact(written, 20_000)]).result(TIMEOUT_S)
    log.close()
    assert whole(settings) == written
    small_disk(16_384)
    assert whole(settings) == written
    log = open_log(settings)
    log.append(REQUESTS, [fact(written, 20_000)]).result(TIMEOUT_S)
    log.close()
    assert whole(settings) == written + 1


def test_log_that_a_full_disk_has_no_room_to_open_is_told_as_such(small_disk: Callable[[int], Path]) -> None:
    folder = small_disk(2048)
    settings = Settings(home=str(folder / "home"))
    open_log(settings).close()
    with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    with pytest.raises(LogError, match="disk is full"):
        open_log(settings)
    small_disk(4096)
    open_log(settings).close()


def test_log_that_cannot_be_made_leaves_nothing_in_the_way(small_disk: Callable[[int], Path]) -> None:
    settings = Settings(home=str(small_disk(40) / "home"))
    with pytest.raises((LogError, UnavailableError)) as caught:
        open_log(settings)
    assert "hint" in caught.value.paragraph() and not (Path(settings.home) / "log.db").exists()
    small_disk(8192)
    log = open_log(settings)
    log.append(REQUESTS, [fact(1)]).result()
    log.close()
    assert whole(settings) == 1
    assert not list(Path(settings.home).glob("*.part*"))


def test_limit_of_file_sizes_is_an_error_and_the_log_goes_on(sqlite_settings: Settings) -> None:
    code = """
import resource, signal
from schemas.errors import LogError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = open_log(settings)
log.append("trajectories", [event("a", 0)]).result()
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
try:
    log.append("trajectories", [event("a", 1, data=bytes(4 << 20))]).result()
except LogError as wrong:
    say(wrong.paragraph().replace("\\n", " | "))
log.append("trajectories", [event("a", 2)]).result()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.append("trajectories", [event("a", 3, data=bytes(4 << 20))]).result()
log.close(); say("done")
"""
    with process(code, sqlite_settings) as writer:
        refusal = heard(writer)
        assert "disk failed under the log" in refusal or "disk is full" in refusal
        assert "nothing that was acknowledged is lost" in refusal
        assert heard(writer) == "done"
    log = open_log(sqlite_settings)
    assert [record.event.sequence for record in read(log.subscribe([TRAJECTORIES]), 3) if record.event] == [0, 2, 3]
    log.close()


# -- files that were lost or cut --------------------------------------------------------------------------------------

@pytest.fixture
def crashed(sqlite_settings: Settings) -> Path:
    """A log whose last events are in its write-ahead log alone, as a kill leaves it: 20 facts, then 20 more."""
    code = """
from schemas.codec import make_event
from schemas.events import CancelRequested
def fact(number):
    return make_event(CancelRequested(episode_id=f"e-{number}", reason="x" * 500), subject="one", source="w",
                      time_us=1, event_id=f"fact-{number}")
log = open_log(settings)
for number in range(20): log.append("requests", [fact(number)]).result()
log.close()
log = open_log(settings)
for number in range(20, 40): log.append("requests", [fact(number)]).result()
say("ready"); sys.stdin.readline()
"""
    with process(code, sqlite_settings) as writer:
        assert heard(writer) == "ready"
        writer.kill()
        writer.wait()
    path = Path(sqlite_settings.home) / "log.db"
    assert path.with_name("log.db-wal").stat().st_size > 0
    return path


def _ids(settings: Settings) -> list[str]:
    log = open_log(settings)
    subscription, ids = log.subscribe([REQUESTS]), []
    while records := subscription.poll(0.0):
        ids += [record.event.id for record in records if record.event]
    log.close()
    return ids


def test_write_ahead_log_of_a_killed_process_is_read(crashed: Path, sqlite_settings: Settings) -> None:
    assert _ids(sqlite_settings) == [f"fact-{number}" for number in range(40)]
    assert whole(sqlite_settings) == 40


def test_write_ahead_log_without_its_file_is_told_and_kept(crashed: Path, sqlite_settings: Settings) -> None:
    """A new file beside it would take it for its own."""
    kept = crashed.with_name("log.db-wal").read_bytes()
    crashed.unlink()
    with pytest.raises(LogDamagedError, match="log file is gone, but its write-ahead log is there"):
        open_log(sqlite_settings)
    assert not crashed.exists() and crashed.with_name("log.db-wal").read_bytes() == kept


@pytest.mark.parametrize(("damage", "at_least"), [
    (lambda wal: wal.unlink(), 20),
    (lambda wal: wal.write_bytes(b""), 20),
    (lambda wal: os.truncate(wal, wal.stat().st_size // 2), 21),
    (lambda wal: os.truncate(wal, wal.stat().st_size - 100), 39),
    (lambda wal: wal.write_bytes(wal.read_bytes()[:-3000] + bytes(3000)), 38),
    (lambda wal: wal.write_bytes(b"no write-ahead log" * 1000), 20),
], ids=["missing", "empty", "half", "cut", "zeros at the end", "garbage"])
def test_write_ahead_log_that_was_lost_or_cut_leaves_a_whole_log(damage: Callable[[Path], object], at_least: int,
                                                                 crashed: Path, sqlite_settings: Settings) -> None:
    """What a file system lost is lost, from the end alone; what is left has no hole, and the log goes on."""
    damage(crashed.with_name("log.db-wal"))
    ids = _ids(sqlite_settings)
    assert ids == [f"fact-{number}" for number in range(len(ids))] and at_least <= len(ids) < 40
    assert whole(sqlite_settings) == len(ids)
    log = open_log(sqlite_settings)
    with pytest.raises(LogError, match="position lies beyond the end of the log") as caught:
        log.subscribe([REQUESTS], None, {(REQUESTS, part): 40 for part in range(4)}).poll(0.0)
    assert "older than what the reader remembers of it" in caught.value.hint
    log.append(REQUESTS, [fact(99)]).result()
    log.close()
    assert whole(sqlite_settings) == len(ids) + 1


def test_shared_memory_file_that_is_stale_or_garbage_does_no_harm(crashed: Path, sqlite_settings: Settings) -> None:
    crashed.with_name("log.db-shm").write_bytes(os.urandom(32768))
    assert len(_ids(sqlite_settings)) == 40
    assert whole(sqlite_settings) == 40


def test_file_of_a_newer_release_is_left_as_it_is(crashed: Path, sqlite_settings: Settings) -> None:
    with apsw.Connection(str(crashed)) as connection:
        connection.pragma("user_version", 99)
    connection.close()
    before = crashed.read_bytes()
    for opening in (open_log, inspect_log):
        with pytest.raises(LogError, match="newer release") as caught:
            opening(sqlite_settings)
        assert "upgrade" in caught.value.hint
    assert crashed.read_bytes() == before


def test_build_of_sqlite_that_can_lose_a_write_ahead_log_is_refused(sqlite_settings: Settings,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    for version, good in (("3.51.2", False), ("3.44.0", False), ("3.51.3", True), ("3.52.0", True), ("4.0.0", True)):
        monkeypatch.setattr(apsw, "sqlite_lib_version", lambda version=version: version)
        if good:
            open_log(sqlite_settings).close()
            continue
        with pytest.raises(UnavailableError, match=f"can corrupt a log.*{version}") as caught:
            open_log(sqlite_settings)
        assert "apsw>=3.51.3" in caught.value.hint


# -- what may not be written ------------------------------------------------------------------------------------------

def _as_nobody(home: Path, code: str) -> str:
    """What `code` says, run by a user who is not root and owns nothing of the home."""
    start = """
import os, sys
from pathlib import Path
from eventlog import open_log
from eventlog.inspection import inspect_log
from schemas.errors import HeadraceError
from schemas.settings import Settings
from tests.eventlog.tools import event
if os.getuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
settings = Settings(home=sys.argv[1])
"""
    done = subprocess.run([sys.executable, "-c", start + code, str(home)], capture_output=True, text=True, check=False,
                          env=os.environ | {"PYTHONPATH": str(REPOSITORY)}, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user can reach, which those of pytest are not."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield Path(folder)


_TRY = """
try:
    log = open_log(settings)
    log.append("requests", [event("a", 1)]).result()
    log.close()
    print("written")
except HeadraceError as wrong:
    print(wrong.paragraph())
"""


@pytest.mark.parametrize("closed", ["file", "folder", "both"])
def test_log_that_may_not_be_written_says_so_and_works_again(closed: str, open_folder: Path) -> None:
    home = open_folder / "home"
    assert _as_nobody(home, _TRY) == "written\n"
    if os.getuid() != 0:
        pytest.skip("needs two users")
    for path, mode in ((home, 0o555), *((one, 0o444) for one in home.iterdir())):
        if (path == home) == (closed == "folder") or closed == "both":
            path.chmod(mode)
    refusal = _as_nobody(home, _TRY)
    assert refusal.startswith("error[") and str(home) in refusal and "hint: " in refusal, refusal
    assert any(word in refusal for word in ("read-only", "cannot be opened", "Permission denied")), refusal
    for path, mode in ((home, 0o777), *((one, 0o666) for one in home.iterdir())):
        path.chmod(mode)
    assert _as_nobody(home, _TRY) == "written\n"
    assert len(read_all(Settings(home=str(home)))) == 2


def read_all(settings: Settings) -> list[object]:
    log = open_log(settings)
    subscription, records = log.subscribe([REQUESTS]), []
    while more := subscription.poll(0.0):
        records += more
    log.close()
    return records


# -- values -----------------------------------------------------------------------------------------------------------

def test_value_of_3_gb_is_refused_at_once_and_never_copied() -> None:
    code = """
import sys
from pathlib import Path
from eventlog.sqlite import SqliteLog
from schemas.codec import make_event
from schemas.errors import HeadraceError
from schemas.events import CancelRequested, DeadLettered
from tests.eventlog.tools import event
from tests.memory import peak_mib
log = SqliteLog(Path(sys.argv[1]) / "log.db", 4)
huge = bytes(3 << 30)  # Zero pages, which are nowhere until somebody reads or copies them.
def told(attempt):
    try:
        attempt()
    except HeadraceError as wrong:
        print(wrong.paragraph().replace("\\n", " | "))
told(lambda: log.append("trajectories", [event("a", 1, data=huge)]))
told(lambda: make_event(DeadLettered(topic="scores", partition=0, offset=1, reason="r", data=huge), subject="a-1",
                        source="s", time_us=1))
log.append("trajectories", [event("a", 0)]).result()
log.close()
print(peak_mib())
"""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True,
                              env=os.environ | {"PYTHONPATH": str(REPOSITORY)}, cwd=REPOSITORY)
    appended, made, peak_mib = done.stdout.splitlines()
    assert "event is too large at event" in appended and "3221225472 bytes" in appended
    assert "too large for an event at record.dead_lettered of a-1, field data: '3221225472 bytes'" in made
    assert "artifact store" in appended and "artifact store" in made
    assert int(peak_mib) < 500


def test_largest_value_that_is_allowed_goes_through_and_one_byte_more_does_not(sqlite_settings: Settings) -> None:
    log = open_log(sqlite_settings)
    log.append(TRAJECTORIES, [event("a", 0, data=bytes(MAX_EVENT_BYTES))]).result(TIMEOUT_S)
    with pytest.raises(LogError, match="too large"):
        log.append(TRAJECTORIES, [event("a", 1, data=bytes(MAX_EVENT_BYTES + 1))])
    with pytest.raises(SchemaError, match="field data"):
        make_event(DeadLettered(topic="t", partition=0, offset=0, reason="", data=bytes(MAX_EVENT_BYTES + 1)),
                   subject="s", source="s", time_us=1)
    read(log.subscribe([TRAJECTORIES]), 1)
    log.close()


# -- clocks -----------------------------------------------------------------------------------------------------------

def test_clock_that_steps_back_disturbs_no_reader_of_a_group(sqlite_settings: Settings,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    log = SqliteLog(Path(sqlite_settings.home) / "log.db", 4, lease_s=1.0)
    one, two = (log.subscribe([REQUESTS], "g", member=name) for name in ("a", "b"))
    settle(one, two, done=lambda: len(one.assignment()) == len(two.assignment()) == 2)
    real = time.time_ns
    monkeypatch.setattr("schemas.ids.time.time_ns", lambda: real() - 3600 * 10**9)
    appended = [fact(number) for number in range(200)]
    for at in range(0, 200, 20):
        log.append(REQUESTS, appended[at:at + 20]).result()
    found = gather(one, two, done=lambda left, right: len({r.event.id for r in (*left, *right) if r.event}) == 200)
    assert all(_ordered(records) for records in found)
    settle(one, two, done=lambda: len(one.assignment()) == len(two.assignment()) == 2)
    assert not one.assignment() & two.assignment()
    log.close()
    monkeypatch.undo()
    assert whole(sqlite_settings) == 200


def _ordered(records: list) -> bool:
    """Offsets of each partition rise, but for one start over after a lease that looked old."""
    places = [(record.position.partition, record.position.offset) for record in records]
    falls = sum(1 for part in range(4) for before, after in zip(
        [o for p, o in places if p == part], [o for p, o in places if p == part][1:], strict=False) if after <= before)
    return falls <= 4


# -- many processes ---------------------------------------------------------------------------------------------------

_STRESS = """
import random
from schemas.codec import make_event
from schemas.events import CancelRequested
log = open_log(settings)
say("ready"); sys.stdin.readline()
draw = random.Random(int(arguments[0]))
for n in range(150):
    names = [f"{arguments[0]}-{n}-{k}" for k in range(draw.randrange(1, 6))]
    many = [make_event(CancelRequested(episode_id=name, reason="x" * draw.randrange(20000)),
                       subject=f"{arguments[0]}-{draw.randrange(9)}", source="w", time_us=n, event_id=name)
            for name in names]
    log.append("requests", many).result()
    say(*(event.id for event in many))
log.close(); say("done")
"""


def test_four_writers_checkpoints_and_kills_leave_a_whole_file(sqlite_settings: Settings) -> None:
    """Two are killed on the way; all four write more than the passive limit, so each wants to checkpoint."""
    open_log(sqlite_settings).close()
    acknowledged: set[str] = set()
    with process(_STRESS, sqlite_settings, 1) as a, process(_STRESS, sqlite_settings, 2) as b, \
            process(_STRESS, sqlite_settings, 3) as c, process(_STRESS, sqlite_settings, 4) as d:
        writers = (a, b, c, d)
        for writer in writers:
            assert heard(writer) == "ready"
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("\n")
            writer.stdin.flush()
        for writer, lines in ((a, 40), (b, 90)):
            for _ in range(lines):
                acknowledged |= set(heard(writer).split())
            writer.send_signal(signal.SIGKILL)
            assert writer.stdout is not None
            for line in writer.stdout:
                if line.endswith("\n"):
                    acknowledged |= set(line.split())
        for writer in (c, d):
            while (line := heard(writer)) != "done":
                acknowledged |= set(line.split())
            assert writer.wait(TIMEOUT_S) == 0
    acknowledged.discard("done")
    path = Path(sqlite_settings.home) / "log.db"
    assert path.stat().st_size > PASSIVE_PAGES * PAGE_BYTES, "nothing was checkpointed while they wrote"
    with apsw.Connection(str(path)) as connection:
        assert connection.pragma("integrity_check") == "ok"
    connection.close()
    there = {record.event.id for record in read_all(sqlite_settings)}
    assert acknowledged <= there
    assert whole(sqlite_settings) == len(there)
