"""A query sees the rows of whole flushes only, with and without a filter by positions."""

from __future__ import annotations

import pytest

from artifacts.store import DirectoryStore
from consumers.folding import Folding
from lake.lake import Lake
from lake.writer import WriterTable
from schemas.errors import CommitConflictError
from tests.lake.histories import IDENTITY, Story, flush_of, records_of


def test_rows_of_a_flush_under_way_are_not_seen(lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    for name in ("e0", "e1"):
        story.start(name)
        story.turn(name)
    records = records_of(story.told)
    lake.bind(IDENTITY)
    folding = Folding(artifacts)
    lake.commit(*flush_of(folding, records[:2]))
    assert lake.sql("select episode_id from turns").num_rows == 1
    rows, start, end = flush_of(folding, records[2:])
    WriterTable(lake.folder, "turns", IDENTITY).append(rows["turns"], end)
    assert lake.sql("select episode_id from turns").num_rows == 1
    with pytest.raises(CommitConflictError):
        lake.commit(rows, start, end)
    lake.commit(rows, start, end)
    assert lake.sql("select episode_id from turns").num_rows == 2
