"""The EventLog contract, held by every backend: SQLite and a real Apache Kafka."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from eventlog.log import EventLog, Subscription
from schemas.envelope import LATEST_US, Position
from schemas.errors import LogError, SchemaError
from schemas.settings import Settings
from schemas.topics import DEAD_LETTERS, REQUESTS, SCORES, TASKS, TOPICS, TRAINING, TRAJECTORIES, partition_for
from tests.eventlog.tools import event, gather, heard, poll_until, process, read, settle

Open = Callable[[], EventLog]
ALL_PARTITIONS = frozenset((TRAJECTORIES, part) for part in range(4))


def test_append_answers_with_the_positions_at_which_readers_find_the_events(log: EventLog) -> None:
    events = [event(f"episode-{number}", number) for number in range(20)]
    positions = log.append(TRAJECTORIES, events).result(30)
    assert positions == [record.position for record in sorted(
        read(log.subscribe([TRAJECTORIES]), 20), key=lambda record: record.event.sequence)]
    assert [record.event for record in read(log.subscribe([TRAJECTORIES]), 20)] == [
        events[positions.index(record.position)] for record in read(log.subscribe([TRAJECTORIES]), 20)]


def test_offsets_of_a_partition_are_contiguous_and_in_the_order_of_appends(log: EventLog) -> None:
    for number in range(30):
        log.append(TRAJECTORIES, [event("episode-1", 2 * number), event("episode-1", 2 * number + 1)])
    records = read(log.subscribe([TRAJECTORIES]), 60)
    assert [record.event.sequence for record in records] == list(range(60))
    assert [record.position.offset for record in records] == list(range(60))


def test_subject_decides_the_partition_alike_in_all_topics(log: EventLog) -> None:
    subjects = [f"episode-{number}" for number in range(40)]
    for topic in (REQUESTS, TRAJECTORIES, SCORES):
        positions = log.append(topic, [event(subject) for subject in subjects]).result(30)
        assert [position.partition for position in positions] == [partition_for(subject, 4) for subject in subjects]
    for topic in (TASKS, TRAINING, DEAD_LETTERS):
        assert log.partitions(topic) == 1
        assert log.append(topic, [event("x")]).result(30) == [Position(topic, 0, 0)]


def test_ends_are_the_next_offsets_of_all_partitions(log: EventLog) -> None:
    assert log.ends([TRAJECTORIES, TASKS]) == dict.fromkeys([*ALL_PARTITIONS, (TASKS, 0)], 0)
    positions = log.append(TRAJECTORIES, [event("episode-1"), event("episode-1", 1)]).result(30)
    ends = log.ends([TRAJECTORIES])
    assert ends[TRAJECTORIES, positions[0].partition] == 2
    assert sum(ends.values()) == 2 and len(ends) == 4


def test_reader_starts_at_the_earliest_the_latest_or_given_offsets(log: EventLog) -> None:
    log.append(TASKS, [event("a", number) for number in range(5)]).result(30)
    earliest, latest = log.subscribe([TASKS]), log.subscribe([TASKS], start="latest")
    given = log.subscribe([TASKS], start={(TASKS, 0): 3})
    log.append(TASKS, [event("a", 5)]).result(30)
    assert [record.event.sequence for record in read(earliest, 6)] == [0, 1, 2, 3, 4, 5]
    assert [record.event.sequence for record in read(latest, 1)] == [5]
    assert [record.event.sequence for record in read(given, 3)] == [3, 4, 5]


def test_position_is_the_next_record_and_seek_moves_it(log: EventLog) -> None:
    log.append(TASKS, [event("a", number) for number in range(10)]).result(30)
    reader = log.subscribe([TASKS])
    assert reader.position((TASKS, 0)) == 0
    first = poll_until(reader, lambda found: len(found) > 0)
    assert reader.position((TASKS, 0)) == first[-1].position.offset + 1
    reader.seek((TASKS, 0), 7)
    assert reader.position((TASKS, 0)) == 7
    assert [record.event.sequence for record in read(reader, 3)] == [7, 8, 9]
    reader.seek((TASKS, 0), 10)
    assert reader.poll(0.05) == []
    with pytest.raises(LogError, match="not assigned"):
        reader.seek((TRAJECTORIES, 0), 0)


def test_poll_gives_no_more_records_than_asked(log: EventLog) -> None:
    log.append(TRAJECTORIES, [event(f"episode-{number}") for number in range(50)]).result(30)
    reader = log.subscribe([TRAJECTORIES])
    sizes = []
    while sum(sizes) < 50:
        sizes.append(len(reader.poll(1.0, max_records=7)))
    assert max(sizes) <= 7


def test_position_beyond_the_end_is_an_error_and_not_an_endless_wait(log: EventLog) -> None:
    log.append(TASKS, [event("a")]).result(30)
    reader = log.subscribe([TASKS], start={(TASKS, 0): 5})
    with pytest.raises(LogError, match="position"):
        poll_until(reader, lambda found: False)


def test_poll_without_news_returns_within_its_time(log: EventLog) -> None:
    reader = log.subscribe(list(TOPICS))
    assert reader.poll(0.05) == []
    assert reader.poll(0.0) == []


def test_empty_append_is_done_at_once(log: EventLog) -> None:
    future = log.append(TRAJECTORIES, [])
    assert future.done() and future.result() == []


def test_text_of_any_script_comes_back_as_it_was(log: EventLog) -> None:
    subjects = ["эпизод-1", "集-2", "épisode 3", "🌊", ""]
    log.append(SCORES, [event(subject, source="Ünïcode ✓") for subject in subjects]).result(30)
    records = read(log.subscribe([SCORES]), 5)
    assert {record.event.subject for record in records} == set(subjects)
    assert {record.event.source for record in records} == {"Ünïcode ✓"}
    assert all(record.position.partition == partition_for(record.event.subject, 4) for record in records)


def test_large_events_come_back_whole(log: EventLog) -> None:
    data = bytes(range(256)) * (20 * 4096)
    log.append(TRAJECTORIES, [event(data=data), event(sequence=1, data=b"small")]).result(60)
    records = read(log.subscribe([TRAJECTORIES]), 2)
    assert records[0].event.data == data and records[1].event.data == b"small"


def test_events_that_no_backend_can_hold_are_refused_and_harm_no_other(log: EventLog) -> None:
    for bad, error in [(event("\ud800"), SchemaError), (event(event_id="") ._replace(id=""), SchemaError),
                       (event(sequence=-1), SchemaError), (event(data="text"), SchemaError),  # type: ignore[arg-type]
                       (event(time_us=LATEST_US + 1), SchemaError), (event(data=bytes(33 << 20)), LogError)]:
        with pytest.raises(error):
            log.append(TRAJECTORIES, [event("good"), bad])
    with pytest.raises(LogError, match="no such topic"):
        log.append("trajectorys", [event()])
    log.append(TRAJECTORIES, [event(sequence=7)]).result(30)
    assert [record.event.sequence for record in read(log.subscribe([TRAJECTORIES]), 1)] == [7]


def test_many_threads_append_at_once(log: EventLog) -> None:
    def write(writer: int) -> None:
        futures = [log.append(TRAJECTORIES, [event(f"episode-{writer}", number)]) for number in range(50)]
        for future in futures:
            future.result(30)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records = read(log.subscribe([TRAJECTORIES]), 400)
    for writer in range(8):
        mine = [record.event.sequence for record in records if record.event.subject == f"episode-{writer}"]
        assert mine == list(range(50))
    assert len({record.position for record in records}) == 400


def test_append_is_awaited_from_an_event_loop(log: EventLog) -> None:
    async def write(writer: int) -> list[Position]:
        found = []
        for number in range(5):
            found += await asyncio.wrap_future(log.append(TRAJECTORIES, [event(f"episode-{writer}", number)]))
        return found

    async def all_of_them() -> list[list[Position]]:
        return await asyncio.gather(*(write(writer) for writer in range(20)))

    answers = asyncio.run(all_of_them())
    assert len({position for positions in answers for position in positions}) == 100


def test_cancelled_waiter_does_not_withdraw_its_events(log: EventLog) -> None:
    future = log.append(TRAJECTORIES, [event()])
    assert not future.cancel()
    assert len(future.result(30)) == 1


def test_log_opened_again_is_the_same_log(opened: Open) -> None:
    first = opened()
    first.append(TASKS, [event("a")]).result(30)
    second = opened()
    assert second.identity == first.identity != ""
    assert second.ends([TASKS]) == {(TASKS, 0): 1}


def test_closed_log_refuses_events(opened: Open) -> None:
    log = opened()
    future = log.append(TASKS, [event()])
    log.close()
    assert future.result(0) == [Position(TASKS, 0, 0)]
    with pytest.raises(LogError, match="closed"):
        log.append(TASKS, [event()])


def test_reader_in_another_process_sees_appended_events(log: EventLog, log_settings: Settings) -> None:
    code = """
reader = open_log(settings).subscribe(["trajectories"])
say("ready")
while True:
    for record in reader.poll(0.2):
        say(record.position.offset, record.event.subject, record.event.sequence)
"""
    with process(code, log_settings) as reader:
        assert heard(reader) == "ready"
        for number in range(3):
            log.append(TRAJECTORIES, [event("ep", number)]).result(30)
            assert heard(reader) == f"{number} ep {number}"


def test_writer_in_another_process_is_seen_here(log: EventLog, log_settings: Settings) -> None:
    reader = log.subscribe([TRAJECTORIES])
    code = """
log = open_log(settings)
log.append("trajectories", [event("ep", number) for number in range(10)]).result()
log.close()
"""
    with process(code, log_settings) as writer:
        assert [record.event.sequence for record in read(reader, 10)] == list(range(10))
        assert writer.wait(30) == 0


class Member:
    """A member of a group that remembers what it was told."""

    def __init__(self, log: EventLog, group: str = "readers", topics: tuple[str, ...] = (TRAJECTORIES,),
                 member: str | None = None) -> None:
        self.told: list[tuple[str, frozenset[tuple[str, int]]]] = []
        self.reader: Subscription = log.subscribe(
            topics, group, member=member, on_assign=lambda parts: self.told.append(("assign", parts)),
            on_revoke=lambda parts: self.told.append(("revoke", parts)))

    @property
    def parts(self) -> frozenset[tuple[str, int]]:
        return self.reader.assignment()


def test_group_shares_all_partitions_of_co_partitioned_topics(log: EventLog) -> None:
    one = Member(log, topics=(REQUESTS, TRAJECTORIES))
    everything = ALL_PARTITIONS | {(REQUESTS, part) for part in range(4)}
    settle(one.reader, done=lambda: one.parts == everything)
    assert one.told == [("assign", everything)]
    two = Member(log, topics=(REQUESTS, TRAJECTORIES))
    settle(one.reader, two.reader, done=lambda: len(one.parts) == len(two.parts) == 4)
    assert one.parts | two.parts == everything and not one.parts & two.parts
    for member in (one, two):
        assert {part for topic, part in member.parts if topic == REQUESTS} == {
            part for topic, part in member.parts if topic == TRAJECTORIES}
    assert one.told[1:] == [("revoke", two.parts)] and two.told == [("assign", two.parts)]
    one.reader.close()
    settle(two.reader, done=lambda: two.parts == everything)
    two.reader.close()


def test_every_record_reaches_one_member_of_a_group_and_each_group(log: EventLog) -> None:
    one, two, other = Member(log), Member(log), Member(log, "others")
    settle(one.reader, two.reader, other.reader,
           done=lambda: len(one.parts) == len(two.parts) == 2 and len(other.parts) == 4)
    log.append(TRAJECTORIES, [event(f"episode-{number}") for number in range(40)]).result(30)
    mine, theirs, all_of_them = gather(
        one.reader, two.reader, other.reader,
        done=lambda mine, theirs, every: len(mine) + len(theirs) >= 40 and len(every) >= 40)
    assert len({record.position for record in mine + theirs}) == len(mine + theirs) == len(all_of_them) == 40
    assert mine and theirs
    for member in (one, two, other):
        member.reader.close()


def test_group_resumes_where_it_committed(log: EventLog) -> None:
    log.append(TASKS, [event("a", number) for number in range(10)]).result(30)
    first = Member(log, topics=(TASKS,))
    poll_until(first.reader, lambda found: len(found) == 10)
    first.reader.commit({(TASKS, 0): 6})
    first.reader.close()
    second = Member(log, topics=(TASKS,))
    assert [record.event.sequence for record in read(second.reader, 4)] == [6, 7, 8, 9]
    second.reader.close()
    with pytest.raises(LogError, match="group"):
        log.subscribe([TASKS]).commit({(TASKS, 0): 1})


def test_start_counts_for_a_group_only_until_it_has_committed(log: EventLog) -> None:
    log.append(TASKS, [event("a", number) for number in range(4)]).result(30)
    first = log.subscribe([TASKS], "late", "latest")
    settle(first, done=lambda: len(first.assignment()) == 1)
    assert first.position((TASKS, 0)) == 4
    first.commit({(TASKS, 0): 2})
    first.close()
    second = log.subscribe([TASKS], "late", "latest")
    assert [record.event.sequence for record in read(second, 2)] == [2, 3]
    second.close()


def test_reader_may_seek_when_it_is_assigned(log: EventLog) -> None:
    log.append(TASKS, [event("a", number) for number in range(10)]).result(30)
    readers: list[Subscription] = []
    for group in range(5):
        readers.append(log.subscribe([TASKS], f"seekers-{group}", on_assign=lambda _: readers[-1].seek((TASKS, 0), 8)))
        assert [record.event.sequence for record in read(readers[-1], 2)] == [8, 9]


def test_kept_partitions_keep_their_position_over_a_rebalance(log: EventLog) -> None:
    log.append(TRAJECTORIES, [event(f"episode-{number}", 1) for number in range(40)]).result(30)
    one = Member(log)
    poll_until(one.reader, lambda found: len(found) == 40)
    two = Member(log)
    settle(one.reader, done=lambda: bool(two.reader.poll(0.05)) or len(one.parts) == len(two.parts) == 2)
    kept = {part: one.reader.position(part) for part in one.parts}
    assert kept == {part: end for part, end in log.ends([TRAJECTORIES]).items() if part in one.parts}
    log.append(TRAJECTORIES, [event(f"episode-{number}", 2) for number in range(40)]).result(30)
    mine, _ = gather(one.reader, two.reader, done=lambda mine, theirs: len(
        {record.position for record in mine + theirs if record.event.sequence == 2}) == 40)
    stayed = kept.keys() & one.parts
    assert {record.event.sequence for record in mine if record.position[:2] in stayed} <= {2}
    for member in (one, two):
        member.reader.close()


_MEMBER = """
reader = open_log(settings).subscribe(["trajectories"], "readers", member=arguments[0] or None)
while len(reader.assignment()) < int(arguments[1]):
    reader.poll(0.1)
say("assigned", len(reader.assignment()))
while True:
    reader.poll(0.1)
"""


def test_partitions_of_a_killed_member_are_taken_over(log: EventLog, log_settings: Settings) -> None:
    with process(_MEMBER, log_settings, "", 2) as doomed:
        here = Member(log)
        settle(here.reader, done=lambda: len(here.parts) == 2)
        assert heard(doomed).startswith("assigned")
        doomed.kill()
        settle(here.reader, done=lambda: here.parts == ALL_PARTITIONS)
    here.reader.close()


def test_static_member_claims_its_partitions_again_at_once_after_a_kill(log: EventLog, log_settings: Settings) -> None:
    other = Member(log, member="member-b")
    with process(_MEMBER, log_settings, "member-a", 2) as killed:
        settle(other.reader, done=lambda: len(other.parts) == 2)
        assert heard(killed) == "assigned 2"
    before, told = other.parts, len(other.told)
    with process(_MEMBER, log_settings, "member-a", 2) as again:
        assert heard(again) == "assigned 2"
        other.reader.poll(0.1)
        assert other.parts == before and len(other.told) == told
    other.reader.close()


def test_older_process_of_a_static_member_is_fenced(log: EventLog) -> None:
    older = Member(log, member="the-one")
    settle(older.reader, done=lambda: len(older.parts) == 4)
    newer = Member(log, member="the-one")
    settle(newer.reader, done=lambda: len(newer.parts) == 4)
    with pytest.raises(LogError, match="took over"):
        settle(older.reader, newer.reader, done=lambda: False)
    newest = Member(log, member="the-one")
    settle(newest.reader, done=lambda: len(newest.parts) == 4)
    for outdated in (older, newer):  # The second has not noticed yet.
        outdated.reader.close()
    for _ in range(20):
        newest.reader.poll(0.1)
    assert newest.told == [("assign", ALL_PARTITIONS)]
    newest.reader.close()
