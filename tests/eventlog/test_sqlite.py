"""What only the embedded log promises: unique ids, survival of kill -9, one file for many processes, clear refusals."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from eventlog import open_log, sqlite_checkpoint
from eventlog.audit import Audit
from eventlog.log import EventLog
from eventlog.sqlite import SqliteLog
from eventlog.sqlite_checkpoint import PASSIVE_PAGES
from eventlog.sqlite_file import PAGE_BYTES, file_system_of
from eventlog.sqlite_groups import range_assignment
from eventlog.sqlite_inspection import SqliteInspector
from schemas.errors import ConfigError, HeadraceError, LogDamagedError, LogError, UnavailableError
from schemas.settings import Settings
from schemas.topics import SCORES, TASKS, TRAJECTORIES, partition_for
from tests.eventlog.tools import TIMEOUT_S, event, heard, process, read, settle


@pytest.fixture
def log(sqlite_settings: Settings):
    opened = open_log(sqlite_settings)
    yield opened
    opened.close()


def database(settings: Settings) -> Path:
    return Path(settings.home) / "log.db"


@contextmanager
def stopped_writer(log: SqliteLog, before: Callable[[apsw.Connection], object] = lambda _: None) -> Iterator[None]:
    """The log's writing thread stands still inside this block."""
    stopped, go_on = threading.Event(), threading.Event()

    def stand_still(connection: apsw.Connection) -> None:
        before(connection)
        stopped.set()
        go_on.wait(TIMEOUT_S)

    log._writer.run(stand_still)
    assert stopped.wait(TIMEOUT_S)
    try:
        yield
    finally:
        go_on.set()


# -- ids ------------------------------------------------------------------------------------------------------------

def test_event_that_is_appended_again_keeps_its_position_and_is_not_written(log: EventLog) -> None:
    events = [event("episode-1", number) for number in range(5)]
    first = log.append(TRAJECTORIES, events).result()
    again = log.append(TRAJECTORIES, [*events, event("episode-1", 5)]).result()
    assert again[:5] == first and again[5].offset == 5
    assert log.append(TRAJECTORIES, [events[2], events[2]]).result() == [first[2], first[2]]
    read(log.subscribe([TRAJECTORIES]), 6)


def test_other_event_of_the_same_id_is_refused_whole_and_harms_no_other_append(log: EventLog) -> None:
    log.append(TRAJECTORIES, [event("a", event_id="one")]).result()
    futures = [log.append(TRAJECTORIES, [event("a", number, event_id=f"good-{number}")]) for number in (1, 2)]
    clash = log.append(TRAJECTORIES, [event("a", 3), event("a", 9, event_id="one")])
    futures.append(log.append(TRAJECTORIES, [event("a", 4)]))
    with pytest.raises(LogError, match="another event with this id"):
        clash.result()
    for future in futures:
        future.result()
    records = read(log.subscribe([TRAJECTORIES]), 4)
    assert [record.event.sequence for record in records] == [0, 1, 2, 4]
    assert [record.position.offset for record in records] == [0, 1, 2, 3]


def test_of_facts_with_one_id_the_first_wins(log: EventLog) -> None:
    first = log.append(SCORES, [event("a", data=b"first", event_id="score")]).result()
    later = event("a", data=b"second", event_id="score", source="other", time_us=1_800_000_000_000_000)
    assert log.append(SCORES, [later]).result() == first
    assert [record.event.data for record in read(log.subscribe([SCORES]), 1)] == [b"first"]
    with pytest.raises(LogError, match="another event"):
        log.append(SCORES, [event("b", event_id="score")]).result()


# -- durability and concurrency ---------------------------------------------------------------------------------------

_WRITER = """
log = open_log(settings)
def write(thread):
    for number in range(10**6):
        position, = log.append("trajectories", [event(f"{arguments[0]}-{thread}", number)]).result()
        say(position.partition, position.offset, f"{arguments[0]}-{thread}", number)
threads = [threading.Thread(target=write, args=(n,)) for n in range(3)]
for thread in threads: thread.start()
"""


def test_every_event_that_was_acknowledged_before_kill_9_is_there_once(sqlite_settings: Settings) -> None:
    acknowledged: list[list[str]] = []
    for round_number in range(4):
        with process(_WRITER, sqlite_settings, f"round-{round_number}") as writer:
            lines = [heard(writer) for _ in range(60 + 25 * round_number)]
            writer.kill()
            assert writer.stdout is not None
            lines += [line.strip() for line in writer.stdout if line.endswith("\n")]
        acknowledged += [line.split(" ") for line in lines]
    log = open_log(sqlite_settings)
    ends = log.ends([TRAJECTORIES])
    records = read(log.subscribe([TRAJECTORIES]), sum(ends.values()))
    there = {(record.position.partition, record.position.offset): record.event for record in records}
    assert len(there) == len(records) and len({event.id for event in there.values()}) == len(records)
    assert set(there) == {(part, offset) for (_, part), end in ends.items() for offset in range(end)}
    for part, offset, subject, number in acknowledged:
        found = there[int(part), int(offset)]
        assert (found.subject, found.sequence) == (subject, int(number))
    with apsw.Connection(str(database(sqlite_settings))) as connection:
        assert connection.pragma("integrity_check") == "ok"
    log.close()


def test_several_processes_write_at_once_without_gaps(log: EventLog, sqlite_settings: Settings) -> None:
    code = """
log = open_log(settings)
say("ready"); sys.stdin.readline()
for n in range(0, 300, 3):
    log.append("trajectories", [event(f"{arguments[0]}-{k % 7}", k) for k in range(n, n + 3)]).result()
log.close(); say("done")
"""
    reader = log.subscribe([TRAJECTORIES])
    with process(code, sqlite_settings, "a") as one, process(code, sqlite_settings, "b") as two:
        for writer in (one, two):
            assert heard(writer) == "ready"
        for writer in (one, two):
            assert writer.stdin is not None
            writer.stdin.write("\n")
            writer.stdin.flush()
        records = read(reader, 600)
        assert {heard(one), heard(two)} == {"done"}
    for part in range(4):
        offsets = [record.position.offset for record in records if record.position.partition == part]
        assert offsets == list(range(len(offsets)))
    for name in ("a", "b"):
        for number in range(7):
            mine = [record.event.sequence for record in records if record.event.subject == f"{name}-{number}"]
            assert mine == sorted(mine)


def test_opening_a_new_log_in_many_threads_makes_one_file(sqlite_settings: Settings) -> None:
    logs: list[EventLog] = []
    threads = [threading.Thread(target=lambda: logs.append(open_log(sqlite_settings))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({log.identity for log in logs}) == 1 and len(logs) == 6
    for log in logs:
        log.close()
    assert not list(Path(sqlite_settings.home).glob("*.part*"))


def test_appends_that_wait_become_one_transaction(log: SqliteLog, monkeypatch: pytest.MonkeyPatch) -> None:
    commits: list[int] = []
    monkeypatch.setattr(log._checkpointer, "saw", commits.append)
    with stopped_writer(log):
        futures = [log.append(TRAJECTORIES, [event(f"episode-{number}")]) for number in range(200)]
        assert not any(future.done() for future in futures)
    for future in futures:
        future.result()
    assert len(commits) == 1


def test_write_ahead_log_starts_over_though_it_was_written_during_a_checkpoint(
        log: SqliteLog, monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[int] = []
    monkeypatch.setattr(log._checkpointer, "saw", pages.append)
    monkeypatch.setattr(sqlite_checkpoint, "PASSIVE_PAGES", 1)
    log.append(TRAJECTORIES, [event("a")]).result()
    with apsw.Connection(str(log._path)) as reader:
        reader.execute("select count(*) from events").fetchall()
        log.append(TRAJECTORIES, [event("a", 1)]).result()  # Beyond what this reader lets a checkpoint move.
        log._checkpointer._checkpoint(log._reader)
    reader.close()
    for sequence in range(2, 5):
        log.append(TRAJECTORIES, [event("a", sequence)]).result()
    assert max(pages) > pages[-1]


def test_a_file_that_was_replaced_before_the_first_append_gets_none(log: SqliteLog) -> None:
    shutil.copy(log._path, copy := log._path.with_name("copy"))
    copy.rename(log._path)
    with pytest.raises(LogError, match="removed or replaced"):
        log.append(TRAJECTORIES, [event("a")]).result()


@pytest.mark.parametrize("gone", ["log.db", "log.db-wal", "the home", "replaced"])
def test_appends_into_files_that_are_gone_are_not_acknowledged(log: SqliteLog, gone: str) -> None:
    log.append(TRAJECTORIES, [event("a")]).result()
    if gone == "the home":
        shutil.rmtree(log._path.parent)
    elif gone == "replaced":
        shutil.copy(log._path, copy := log._path.with_name("copy"))
        copy.rename(log._path)
    else:
        (log._path.parent / gone).unlink()
    for sequence in (1, 2):
        with pytest.raises(LogError, match="removed or replaced"):
            log.append(TRAJECTORIES, [event("a", sequence)]).result()


def test_full_queue_holds_the_appender_back(log: SqliteLog) -> None:
    data = bytes(16 << 20)
    futures, admitted = [], threading.Semaphore(0)

    def write() -> None:
        for number in range(8):
            futures.append(log.append(TRAJECTORIES, [event("a", number, data)]))
            admitted.release()

    thread = threading.Thread(target=write)
    with stopped_writer(log):
        thread.start()
        for _ in range(3):
            assert admitted.acquire(timeout=TIMEOUT_S)
        assert not admitted.acquire(timeout=0.2), "a fourth 16 MB event fitted into a queue of 64 MB"
    thread.join(TIMEOUT_S)
    assert [future.result(TIMEOUT_S)[0].offset for future in futures] == list(range(8))


def test_write_ahead_log_is_moved_into_the_file_while_the_log_is_open(log: SqliteLog,
                                                                      sqlite_settings: Settings) -> None:
    size_before = database(sqlite_settings).stat().st_size
    data = bytes(PAGE_BYTES)
    for _ in range(4):
        log.append(TRAJECTORIES, [event(data=data) for _ in range(PASSIVE_PAGES // 3)]).result()
    deadline = time.monotonic() + TIMEOUT_S
    while database(sqlite_settings).stat().st_size < size_before + PASSIVE_PAGES * PAGE_BYTES // 2:
        assert time.monotonic() < deadline, "no checkpoint came"
        log.append(TRAJECTORIES, [event()]).result()


def test_reader_hears_of_an_event_within_five_milliseconds(log: EventLog) -> None:
    """Half of 100 events that a thread appends are read within 5 ms of their acknowledgement or earlier."""
    reader, seen = log.subscribe([TRAJECTORIES]), {}

    def follow() -> None:
        while len(seen) < 100:
            for record in reader.poll(1.0):
                seen[record.event.sequence] = time.perf_counter()

    thread = threading.Thread(target=follow)
    thread.start()
    acknowledged = {}
    for number in range(100):
        log.append(TRAJECTORIES, [event("a", number)]).result()
        acknowledged[number] = time.perf_counter()
    thread.join(TIMEOUT_S)
    delays = sorted(seen[number] - acknowledged[number] for number in range(100))
    assert delays[50] < 0.005, delays[50]


# -- groups -----------------------------------------------------------------------------------------------------------

def test_range_assignment_shares_each_topic_evenly_and_keeps_topics_together() -> None:
    members = {"a": ["x", "y"], "b": ["x", "y"], "c": ["x"]}
    partitions = {"x": 4, "y": 4}
    shares = {member: range_assignment(member, members, partitions) for member in members}
    assert shares["a"] == {("x", 0), ("x", 1), ("y", 0), ("y", 1)}
    assert shares["b"] == {("x", 2), ("y", 2), ("y", 3)}
    assert shares["c"] == {("x", 3)}


def test_partition_has_one_owner_at_any_time(log: EventLog) -> None:
    one = log.subscribe([TRAJECTORIES], "g", member="a")
    settle(one, done=lambda: len(one.assignment()) == 4)
    two = log.subscribe([TRAJECTORIES], "g", member="b")
    for _ in range(5):
        two.poll(0.05)
        assert two.assignment() == frozenset(), "taken before its owner gave it back"
    one.poll(0.0)
    assert len(one.assignment()) == 2
    settle(two, done=lambda: len(two.assignment()) == 2)
    assert not one.assignment() & two.assignment()


def test_member_that_is_busy_keeps_its_partitions(sqlite_settings: Settings) -> None:
    log = SqliteLog(database(sqlite_settings), 4, lease_s=1.5)
    busy, other = (log.subscribe([TRAJECTORIES], "g", member=name) for name in ("a", "b"))
    settle(busy, other, done=lambda: len(busy.assignment()) == len(other.assignment()) == 2)
    other.poll(3.0)
    assert len(other.assignment()) == 2
    log.close()


def test_member_that_was_paused_beyond_its_lease_gives_up_what_others_took(sqlite_settings: Settings) -> None:
    path = database(sqlite_settings)
    slow, quick = SqliteLog(path, 4, lease_s=0.4), SqliteLog(path, 4, lease_s=0.4)
    told: list[str] = []
    paused = slow.subscribe([TRAJECTORIES], "g", on_assign=lambda _: told.append("assign"),
                            on_revoke=lambda _: told.append("revoke"))
    settle(paused, done=lambda: len(paused.assignment()) == 4)
    # Outside of a transaction, as a process that was stopped between two.
    with stopped_writer(slow, lambda connection: connection.execute("rollback")):
        other = quick.subscribe([TRAJECTORIES], "g")
        settle(other, done=lambda: len(other.assignment()) == 4)
    settle(paused, other, done=lambda: len(paused.assignment()) == len(other.assignment()) == 2)
    assert told == ["assign", "revoke", "assign"]
    slow.close()
    quick.close()


def test_late_commit_of_a_former_owner_changes_nothing(log: EventLog) -> None:
    log.append(TASKS, [event("a", number) for number in range(5)]).result()
    first = log.subscribe([TASKS], "g", member="m")
    read(first, 5)
    first.commit({(TASKS, 0): 3})
    second = log.subscribe([TASKS], "g", member="m")
    assert [record.event.sequence for record in read(second, 2)] == [3, 4]
    first.commit({(TASKS, 0): 1})
    second.close()
    third = log.subscribe([TASKS], "g", member="m")
    assert [record.event.sequence for record in read(third, 2)] == [3, 4]


# -- places and files -------------------------------------------------------------------------------------------------

def refusal(settings: Settings, kind: type[HeadraceError]) -> str:
    """The paragraph with which the log refuses to open."""
    with pytest.raises(kind) as caught:
        open_log(settings)
    paragraph = caught.value.paragraph()
    assert settings.home in paragraph and "hint: " in paragraph
    return paragraph


def filled(settings: Settings) -> Path:
    log = open_log(settings)
    log.append(TRAJECTORIES, [event(f"episode-{number}", data=bytes(5000)) for number in range(100)]).result()
    log.close()
    return database(settings)


@pytest.mark.parametrize("name", ["with spaces", "журнал ✓", "per%20cent?x=1#y", "quote'\"s"])
def test_home_may_have_any_name(tmp_path: Path, name: str) -> None:
    settings = Settings(home=str(tmp_path / name / "home"))
    filled(settings)
    log = open_log(settings)
    read(log.subscribe([TRAJECTORIES]), 100)
    log.close()
    assert database(settings).exists()


def test_relative_home_stays_where_it_was_when_the_folder_changes(tmp_path: Path,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = open_log(Settings(home="home"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    log.append(TASKS, [event()]).result()
    read(log.subscribe([TASKS]), 1)
    log.close()
    assert (tmp_path / "home" / "log.db").exists() and not list((tmp_path / "elsewhere").iterdir())


def test_unknown_kind_of_log_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    for value in ("sqllite", "", "kafka:/x:1", "kafka://", "kafka://host", "kafka://host:port", "kafka://h:1,"):
        with pytest.raises(ConfigError) as caught:
            open_log(Settings(home=str(tmp_path), log=value))
        assert "sqlite" in caught.value.hint or "kafka://" in caught.value.hint


def test_folder_that_cannot_be_written_is_named() -> None:
    assert "cannot be made" in refusal(Settings(home="/proc/headrace/home"), UnavailableError)


def test_read_only_folder_is_named_to_an_ordinary_user() -> None:
    code = """
import os, sys
from pathlib import Path
from eventlog.sqlite import SqliteLog
from schemas.errors import UnavailableError
if os.getuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
try:
    SqliteLog(Path(sys.argv[1]) / "log.db", 4)
except UnavailableError as wrong:
    print(wrong.paragraph())
"""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=False)
        os.chmod(folder, 0o755)
    assert "cannot be made (Permission denied)" in done.stdout and "--home" in done.stdout, done.stderr


@pytest.mark.parametrize(("damage", "words"), [
    (lambda path: path.write_bytes(b""), "is empty"),
    (lambda path: path.write_bytes(b"this is no database" * 1000), "corrupt"),
    (lambda path: path.write_bytes(path.read_bytes()[:PAGE_BYTES * 20]), "corrupt"),
    (lambda path: path.write_bytes(path.read_bytes()[:16] + bytes(84) + path.read_bytes()[100:]), "corrupt"),
], ids=["empty", "no database", "truncated", "header"])
def test_damaged_file_is_refused_and_left_as_it_is(sqlite_settings: Settings, damage: Callable[[Path], object],
                                                   words: str) -> None:
    path = filled(sqlite_settings)
    damage(path)
    damaged = path.read_bytes()
    assert words in refusal(sqlite_settings, LogError)
    assert path.read_bytes() == damaged


def test_damage_inside_the_file_is_an_error_of_the_reader_and_not_wrong_data(sqlite_settings: Settings) -> None:
    path = filled(sqlite_settings)
    content = path.read_bytes()
    path.write_bytes(content[:PAGE_BYTES * 10] + b"\xff" * (len(content) - PAGE_BYTES * 10))
    log = open_log(sqlite_settings)
    with pytest.raises(LogError, match="corrupt"):
        read(log.subscribe([TRAJECTORIES]), 100)
    log.close()


@pytest.mark.parametrize(("statement", "told", "read_as"), [
    ("update heads set next_offset = next_offset + 3", "rows are gone from the file", "rows are gone from the log"),
    ("delete from heads", "the ends of 0", "does not know where a partition ends"),
    ("delete from meta", "identity is gone", ""), ("drop table commits", "tables are gone from the file: commits", ""),
    ("insert into commits values ('sink', 'trabectories', 0, 5)", "read trabectories-0, which does not exist", ""),
    ("insert into commits values ('sink', cast(x'747261ea' as text), 0, 5)", "text is not UTF-8", ""),
    ("insert into commits select 'sink', name, 0, 500 from topics", "the log lost its end", "")])
def test_rows_that_are_gone_are_told_and_hold_no_reader_for_ever(sqlite_settings: Settings, statement: str, told: str,
                                                                read_as: str) -> None:
    path = filled(sqlite_settings)
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.close()
    inspector = SqliteInspector(path)
    audit = Audit(inspector)
    assert sum(audit.run()) >= 0
    assert any(told in finding.detail and finding.fault for finding in audit.examples)
    inspector.close()
    if read_as:
        log = open_log(sqlite_settings)
        subscription = log.subscribe([TRAJECTORIES])
        with pytest.raises(LogDamagedError, match=read_as):
            while True:
                subscription.poll(0)
        log.close()


@pytest.mark.parametrize(("statement", "words"), [
    ("update topics set partitions = 0 where name = 'scores'", "no such topic"),
    ("update topics set name = 'trabectories' where name = 'trajectories'", "trabectories"),
    ("update topics set name = cast(x'747261ea' as text) where name = 'scores'", "text is not UTF-8"),
    ("update heads set next_offset = x'0005'", "no such partition or end of one")])
def test_a_list_of_topics_that_is_damaged_is_refused_by_readers_writers_and_the_audit(
        sqlite_settings: Settings, statement: str, words: str) -> None:
    path = filled(sqlite_settings)
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.close()
    assert words in refusal(sqlite_settings, LogDamagedError)
    with pytest.raises(LogDamagedError, match=words):
        SqliteInspector(path)


@pytest.mark.parametrize(("pragma", "value", "words"), [
    ("user_version", 99, "newer release"), ("application_id", 7, "not a log")])
def test_file_of_another_release_or_program_is_refused(sqlite_settings: Settings, pragma: str, value: int,
                                                       words: str) -> None:
    with apsw.Connection(str(filled(sqlite_settings))) as connection:
        connection.pragma(pragma, value)
    assert words in refusal(sqlite_settings, LogError)


def test_network_file_systems_are_told_from_local_ones() -> None:
    mounts = ("22 1 8:1 / / rw shared:1 - ext4 /dev/sda rw\n"
              "30 22 0:40 / /mnt/my\\040disk rw - nfs4 server:/x rw\n"
              "31 22 0:41 / /mnt/my\\040disk/local rw shared:3 master:1 - xfs /dev/sdb rw\n")
    assert file_system_of("/home/x", mounts) == "ext4"
    assert file_system_of("/mnt/my disk/home", mounts) == "nfs4"
    assert file_system_of("/mnt/my disk/local/home", mounts) == "xfs"
    assert file_system_of("/mnt/my disks", mounts) == "ext4"


def test_network_file_system_is_refused(sqlite_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventlog.sqlite_file.file_system_of", lambda path, mounts: "nfs4")
    assert "network file system" in refusal(sqlite_settings, UnavailableError)


def test_partition_counts_are_those_the_file_was_made_with(tmp_path: Path) -> None:
    open_log(Settings(home=str(tmp_path), log_partitions=2)).close()
    log = open_log(Settings(home=str(tmp_path), log_partitions=8))
    assert log.partitions(TRAJECTORIES) == 2 and log.partitions(TASKS) == 1
    assert log.append(TRAJECTORIES, [event("x")]).result()[0].partition == partition_for("x", 2)
    log.close()


def test_full_disk_is_an_error_of_the_append_and_the_log_goes_on(log: SqliteLog) -> None:
    pages = log._writer.run(lambda connection: connection.pragma("page_count")).result()
    log._writer.run(lambda connection: connection.pragma("max_page_count", pages + 4) and None).result()
    with pytest.raises(LogError, match="disk is full"):
        log.append(TRAJECTORIES, [event(data=bytes(1 << 20))]).result()
    log.append(TRAJECTORIES, [event("small", 1)]).result()
    assert [record.event.sequence for record in read(log.subscribe([TRAJECTORIES]), 1)] == [1]
