"""The audit row by row: whatever is changed in a row, in whatever column, is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pyarrow as pa
import pytest

from artifacts.store import DirectoryStore
from consumers.folding import Folding
from eventlog import open_log
from eventlog.inspection import Inspector, inspect_log
from eventlog.log import EventLog
from lake.lake import Lake
from lake.snapshot import snapshot_of
from replay.audit import differences
from replay.source import ArchiveSource, LogSource, Loss
from schemas.envelope import Record
from schemas.settings import Settings
from schemas.topics import TOPICS, TRAJECTORIES
from tests.lake.histories import Story, flush_of, whole_story
from tests.lake.test_verify import Tables, double, drop, write

Faults = list[tuple[Callable[[Tables], None], str]]


def all_of(faults: Faults) -> Callable[[Tables], None]:
    def plant(tables: Tables) -> None:
        for fault, _ in faults:
            fault(tables)

    return plant


@pytest.fixture
def log(settings: Settings) -> Iterator[EventLog]:
    log = open_log(settings)
    yield log
    log.close()


@pytest.fixture
def inspector(log: EventLog, settings: Settings) -> Iterator[Inspector]:
    with closing(inspect_log(settings)) as inspector:
        yield inspector


def fill(log: EventLog, inspector: Inspector, lake: Lake, artifacts: DirectoryStore, story: Story,
         plant: Callable[[Tables], None] | None = None) -> None:
    whole_story(story, episodes=3)
    for topic, event in story.told:
        log.append(topic, [event]).result()
    records = records_in(log, inspector)
    tables, start, end = flush_of(Folding(artifacts), records)
    if plant:
        plant(tables)
    lake.bind(log.identity)
    lake.commit(tables, start, end)


def records_in(log: EventLog, inspector: Inspector) -> list[Record]:
    source = LogSource(inspector, None, list[Loss]().append)
    return [record for part, end in log.ends(TOPICS).items() for record in source.read(part, 0, end)]


def test_a_sound_lake_is_what_its_archive_and_its_log_say(
        log: EventLog, inspector: Inspector, lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    fill(log, inspector, lake, artifacts, story)
    assert list(differences(lake, artifacts)) == []
    assert list(differences(lake, artifacts, inspector)) == []
    lake.compact()
    assert list(differences(lake, artifacts, inspector)) == []


CHANGED: Faults = [
    (write("turns", "text", "something else"), "`text` is 'something else', its event says 'turn 0'"),
    (write("turns", "generated_tokens", [1, 2, 3]), "`generated_tokens` is [1, 2, 3]"),
    (write("turns", "logprobs", None), "`logprobs` is None"),
    (write("requests", "policy", "another"), "`policy` is 'another'"),
    (write("scores", "reward", 0.5), "`reward` is 0.5, its event says 1.0"),
    (write("scores", "components", [("content", 0.75)]), "`components` is [('content', 0.75)]"),
    (write("episodes", "answer", "3"), "`answer` is '3'"),
    (write("batch_rows", "advantage", 9.5), "`advantage` is 9.5"),
    (write("batch_dispositions", "reason", "whim"), "`reason` is 'whim'"),
    (write("events", "admitted", False, where="turn.generated"), "`admitted` is False"),
    (write("steps", "loss", 0.125), "`loss` is 0.125"),
]
COUNTED: Faults = [
    (double("tool_calls"), "tool_calls: trajectories-"),
    (drop("turns", 0), "there are 0 rows, its event makes 1"),
    (drop("dead_letters", 0), "would be a dead letter now"),
    (drop("batch_dispositions", 0), "batch_dispositions: training-0"),
    (double("batch_rows"), "batch_rows: training-0 offset 0: there are 2 rows, its event makes 1"),
]
IN_ARCHIVE: Faults = [
    (write("events", "data", b"\x80", where="batch.sealed"), "`data` is b'\\x80'"),
    (write("events", "id", "another", where="episode.requested"), "`id` is 'another'"),
    (write("events", "source", "another", where="score.recorded"), "`source` is 'another'"),
    (double("events"), "there are 2 rows, its event makes 1"),
    (write("events", "offset", 10**6, where="weights.published"), "there are 0 rows, its event makes 1"),
]


@pytest.mark.parametrize("faults", [CHANGED, COUNTED], ids=["changed", "counted"])
def test_changed_rows_are_found_by_the_archive(log: EventLog, inspector: Inspector, lake: Lake,
                                               artifacts: DirectoryStore, story: Story,
                                               faults: Faults) -> None:
    fill(log, inspector, lake, artifacts, story, all_of(faults))
    found = list(differences(lake, artifacts))
    assert [told for _, told in faults if not any(told in problem for problem in found)] == [], found


def test_a_changed_archive_is_found_by_the_log(
        log: EventLog, inspector: Inspector, lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    fill(log, inspector, lake, artifacts, story, all_of(IN_ARCHIVE))
    found = list(differences(lake, artifacts, inspector))
    assert [told for _, told in IN_ARCHIVE if not any(told in problem for problem in found)] == [], found


def test_many_faults_of_a_kind_are_counted(
        log: EventLog, inspector: Inspector, lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    def plant(tables: Tables) -> None:
        rows = tables["events"]
        index = rows.column_names.index("source")
        tables["events"] = rows.set_column(index, "source", pa.array(["x"] * rows.num_rows))

    fill(log, inspector, lake, artifacts, story, plant)
    found = list(differences(lake, artifacts, inspector))
    assert len(found) < 30 and "more of events" in found[-1]


def test_the_archive_has_what_was_trimmed_from_the_log(
        log: EventLog, inspector: Inspector, lake: Lake, artifacts: DirectoryStore, story: Story,
        settings: Settings) -> None:
    import apsw

    fill(log, inspector, lake, artifacts, story)
    whole = records_in(log, inspector)
    connection = apsw.Connection(f"{settings.home}/log.db")
    connection.execute("""delete from events where offset < 3 and exists (select 1 from heads h
        where h.topic = events.topic and h.partition = events.partition and h.next_offset > 3)""")
    connection.close()
    archive, lost = ArchiveSource(lake, snapshot_of(lake.positions())), list[Loss]()
    source = LogSource(inspector, archive, lost.append)
    assert [record for part, end in log.ends(TOPICS).items() for record in source.read(part, 0, end)] == whole
    assert lost == []
    assert list(differences(lake, artifacts, inspector)) == []
    part = next(part for part, end in log.ends([TRAJECTORIES]).items() if end > 3)
    assert [record.position.offset for record in LogSource(inspector, None, lost.append).read(part, 0, 4)] == [3]
    assert [str(loss) for loss in lost] == [
        f"the log at {part[0]}-{part[1]} offsets 0 to 2: rows are gone from the file"]
