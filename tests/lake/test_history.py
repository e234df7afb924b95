"""The archive gives back every event as it was appended."""

from __future__ import annotations

from artifacts.store import DirectoryStore
from lake.history import history, transcripts
from lake.lake import Lake
from schemas.head import Heads
from schemas.transcript import transcript_of
from tests.lake.histories import Story, pour, records_of, whole_story


def test_history_is_what_was_appended(lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    whole_story(story)
    pour(lake, artifacts, records_of(story.told), size=9)
    wanted = {name: [event for topic, event in story.told if topic == "trajectories" and event.subject == name]
              for name in ("episode-0", "open")}
    assert history(lake, [*wanted, "nobody"]) == wanted
    assert any(event.name == "episode.paused" for event in wanted["open"])


def test_history_of_a_snapshot_ends_there(lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    story.episode("e")
    records = records_of(story.told)
    pour(lake, artifacts, records)
    events = history(lake, ["e"], {f"trajectories-{records[0].position.partition}": 2})["e"]
    assert [event.name for event in events] == ["episode.started", "turn.generated"]


def test_transcripts_fold_the_archive(lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    story.episode("e")
    story.turn("e", 3, source="zombie", sequence=1)
    pour(lake, artifacts, records_of(story.told))
    found = transcripts(lake, ["e"])["e"]
    wanted = transcript_of("e", [event for topic, event in story.told if topic == "trajectories"])
    assert found == wanted
    assert found.fenced == 1 and found.sequences()[0].ids == [0, 1, 7, 8, 9]


def test_restored_heads_are_those_of_a_reader_that_never_stopped(
        lake: Lake, artifacts: DirectoryStore, story: Story) -> None:
    from consumers.folding import Folding

    whole_story(story)
    records = records_of(story.told)
    pour(lake, artifacts, records)
    never_stopped = Folding(artifacts)
    for record in records:
        never_stopped.rows(record)
    restored = Folding(artifacts)
    restored.restore(lake, range(4), lake.positions())
    assert heads(restored).closed == heads(never_stopped).closed
    assert heads(restored).open == heads(never_stopped).open


def heads(folding: object) -> Heads:
    found = folding._heads  # type: ignore[attr-defined]
    assert isinstance(found, Heads)
    return found
