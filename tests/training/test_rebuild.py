"""A batch is built again from the lake, and whatever was altered since is seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake import open_lake
from schemas.errors import NotFoundError, TrainingError
from schemas.events import BatchSealed
from tests.training.world import RUN, World, member
from training import manifest
from training.accounts import close_books
from training.batch import seal
from training.rebuild import Rebuilt, rebuild
from training.spec import BatchSpec

SPEC = BatchSpec(groups=1, group_size=3, sequence_length=16, minibatches=1)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "home")
    yield world
    world.close()


def sealed_batch(world: World, name: str = "a", version: int = 0) -> BatchSealed:
    world.group(name, [1.0, 0.0, 0.5], version=version)
    world.sink()
    sealed = seal(RUN, SPEC, lake=world.lake, artifacts=world.artifacts, log=world.log)
    assert sealed is not None
    world.sink()
    return sealed


def again(world: World, sealed: BatchSealed) -> Rebuilt:
    return rebuild(sealed.batch_id, lake=open_lake(world.settings, world.artifacts), artifacts=world.artifacts)


def alter(world: World, table: str, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Rewrite the rows of a table's files in place, behind the lake's back."""
    for path in sorted((world.lake.root / table).rglob("*.parquet")):
        if "_delta_log" in path.parts:
            continue
        old = pq.ParquetFile(path).read()
        rows = old.to_pylist()
        change(rows)
        pq.write_table(pa.Table.from_pylist(rows, schema=old.schema), path)


def test_every_batch_is_built_again_byte_for_byte(world: World):
    batches = [sealed_batch(world, name, step) for step, name in enumerate("abc")]
    # What came later does not belong to the snapshot: neither a new score nor a compaction changes it.
    world.score(member("a", 0), 0.125, cause="replay")
    world.sink()
    world.lake.compact()
    for sealed in batches:
        found = again(world, sealed)
        assert (found.outcome, found.detail) == ("identical", "")
        assert found.rebuilt_sha256 == found.sealed_sha256 == sealed.sha256


def test_a_rescored_episode_does_not_change_the_past(world: World):
    sealed = sealed_batch(world)
    world.score(member("a", 0), 0.0, cause="replay")
    world.sink()
    assert world.lake.sql("select count(*) as n from current_scores where reward = 0").to_pylist() == [{"n": 2}]
    assert again(world, sealed).outcome == "identical"


def test_a_planted_reward_is_seen(world: World):
    sealed = sealed_batch(world)

    def plant(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row["reward"] = 1.0 if row["reward"] == 0.5 else row["reward"]

    alter(world, "scores", plant)
    found = again(world, sealed)
    assert found.outcome == "different"
    assert "row 0 was built as" in found.detail or "row 1" in found.detail or "row 2" in found.detail


@pytest.mark.parametrize(("told", "altered", "words"), [
    (b"\x07\0\0\0\x08\0\0\0", b"\x07\0\0\0\x0b\0\0\0", "sealed as"),  # ids 7, 8 become 7, 11
    (b"\0\0\0\xbf", b"\0\0\0\xbe", "tokens, logprobs or versions differ"),  # logprobs -0.5 become -0.125
])
def test_an_altered_token_in_the_archive_is_seen(world: World, told: bytes, altered: bytes, words: str):
    sealed = sealed_batch(world)

    def swap(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row["data"] = row["data"].replace(told, altered)

    alter(world, "events", swap)
    found = again(world, sealed)
    assert found.outcome == "different" and words in found.detail


def test_a_dropped_event_is_seen(world: World):
    sealed = sealed_batch(world)

    def drop(rows: list[dict[str, Any]]) -> None:
        rows[:] = [row for row in rows if row["type"] != "turn.generated" or row["sequence"] != 2]

    alter(world, "events", drop)
    assert again(world, sealed).outcome == "different"


def test_an_altered_batch_row_is_seen(world: World):
    sealed = sealed_batch(world)

    def change(rows: list[dict[str, Any]]) -> None:
        rows[0]["advantage"] = 9.0

    alter(world, "batch_rows", change)
    found = again(world, sealed)
    assert found.outcome == "different" and "in batch_rows" in found.detail


def test_a_damaged_file_or_manifest_is_seen(world: World):
    sealed = sealed_batch(world)
    for name, words in ((sealed.sha256, "file is damaged"), (sealed.manifest.digest, "manifest is damaged")):
        path = world.artifacts.path(name)  # type: ignore[attr-defined]
        kept = path.read_bytes()
        path.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
        found = again(world, sealed)
        assert found.outcome == "different" and words in found.detail
        path.write_bytes(kept)
    assert again(world, sealed).outcome == "identical"


def test_under_other_code_nothing_is_compared(world: World, monkeypatch: pytest.MonkeyPatch):
    sealed = sealed_batch(world)
    manifest.code_digest.cache_clear()
    monkeypatch.setattr(manifest, "_SOURCES", manifest._SOURCES[1:])
    assert again(world, sealed).outcome == "not comparable"
    manifest.code_digest.cache_clear()


def test_an_unknown_batch_and_an_unknown_run_are_named(world: World):
    sealed_batch(world)
    with pytest.raises(NotFoundError, match="no such batch: 'nowhere'"):
        rebuild("nowhere", lake=world.lake, artifacts=world.artifacts)
    with pytest.raises(NotFoundError, match="no episode was requested"):
        close_books("nobody", world.lake)


def test_the_books_close_and_a_miscounted_disposition_is_seen(world: World):
    sealed_batch(world)
    world.request("open", 1)
    world.sink()
    assert close_books(RUN, world.lake) == {"pending": 1, "trained": 3}

    def miscount(rows: list[dict[str, Any]]) -> None:
        rows[0]["disposition"] = "surplus"

    alter(world, "batch_dispositions", miscount)
    with pytest.raises(TrainingError, match="manifest says trained, the lake says surplus"):
        close_books(RUN, open_lake(world.settings, world.artifacts))
