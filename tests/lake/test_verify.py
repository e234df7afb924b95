"""The audit must find planted faults: each is one that a broken sink or a lost file would leave."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from artifacts.store import DirectoryStore
from consumers.folding import Folding
from lake.lake import Lake
from tests.lake.histories import IDENTITY, Story, flush_of, records_of, rows, whole_story

Tables = dict[str, pa.Table]


def drop(table: str, index: int) -> Callable[[Tables], None]:
    def plant(tables: Tables) -> None:
        kept = [row for row in range(tables[table].num_rows) if row != index % tables[table].num_rows]
        tables[table] = tables[table].take(kept)

    return plant


def double(table: str) -> Callable[[Tables], None]:
    def plant(tables: Tables) -> None:
        tables[table] = pa.concat_tables([tables[table], tables[table].slice(0, 1)])

    return plant


def write(table: str, column: str, value: object, where: str = "") -> Callable[[Tables], None]:
    def plant(tables: Tables) -> None:
        rows = tables[table]
        index = rows.column_names.index(column)
        hit = pc.equal(rows["type"], where) if where else pc.equal(pc.rank(rows["offset"], tiebreaker="first"), 1)
        values = pc.if_else(hit, pa.scalar(value, rows.schema.field(index).type), rows[column])
        tables[table] = rows.set_column(index, rows.schema.field(index), values)

    return plant


FAULTS: list[tuple[Callable[[Tables], None], str]] = [
    (drop("events", 2), "are missing"),
    (drop("events", -1), "are missing"),
    (double("events"), "is there 2 times in events"),
    (drop("turns", 0), "turns: no row for the turn.generated event"),
    (double("turns"), "is there 2 times in turns"),
    (double("episodes"), "is there 2 times in episodes"),
    (drop("requests", 1), "requests: no row for the episode.requested event"),
    (drop("scores", 1), "scores: no row for the score.recorded event"),
    (drop("batch_rows", 0), "2 episodes were sealed, 1 are in batch_rows"),
    (write("events", "admitted", False, where="tool.called"), "tool_calls: the row at|admitted events, sequences"),
    (write("events", "sequence", 7, where="episode.finished"), "admitted events, sequences 0 to 7"),
    (write("turns", "offset", 10**6), "turns: no row for"),
    (write("scores", "reward", 1.5), "reward 1.5 is outside of 0 to 1"),
    (write("scores", "reward", None), "status ok without a reward"),
    (write("scores", "status", "infra_failure"), "a reward without status ok"),
    (write("scores", "evidence", None), "no evidence"),
    (write("scores", "evidence", "sha256:" + "0" * 64), "its evidence cannot be had: artifact is missing"),
    (write("scores", "submission", "sha256:" + "0" * 64), "judges another submission"),
    (write("requests", "purpose", "eval"), "requested for evaluation"),
    (double("batch_dispositions"), "decided 2 times by sealed batches"),
    (write("batch_dispositions", "episode_id", "nobody"), "its run never requested"),
]


@pytest.fixture
def flush(lake: Lake, artifacts: DirectoryStore, story: Story) -> Callable[[Callable[[Tables], None] | None], None]:
    whole_story(story, episodes=3)

    def commit(plant: Callable[[Tables], None] | None) -> None:
        lake.bind(IDENTITY)
        tables, start, end = flush_of(Folding(artifacts), records_of(story.told))
        if plant:
            plant(tables)
        lake.commit(tables, start, end)

    return commit


def test_a_sound_lake_has_no_problems(lake: Lake, flush: Callable[[object], None]) -> None:
    flush(None)
    assert lake.verify() == []


@pytest.mark.parametrize(("plant", "told"), FAULTS, ids=[told for _, told in FAULTS])
def test_planted_faults_are_found(
        lake: Lake, flush: Callable[[object], None], plant: Callable[[Tables], None], told: str) -> None:
    flush(plant)
    found = lake.verify()
    assert any(part in problem for problem in found for part in told.split("|")), found


def test_dispositions_that_do_not_close_are_found(lake: Lake, flush: Callable[[object], None]) -> None:
    """A row of `episodes` that is there twice would count its episode twice."""
    flush(double("episodes"))
    assert any("dispositions of" in problem for problem in lake.verify())
    assert rows(lake, "select count(*) - count(distinct episode_id) from dispositions") == [(1,)]


def test_an_empty_lake_is_sound(lake: Lake) -> None:
    assert lake.verify() == []
