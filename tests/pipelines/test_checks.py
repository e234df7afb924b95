"""Each check is green on an honest lake and red on the fault it is there for, and says what it found."""

from __future__ import annotations

import msgspec
import pytest

from consumers.rows import Row
from pipelines.checks import (
    CheckOutcome,
    check_accounts_closed,
    check_batch_accounts,
    check_event_ids_unique,
    check_infra_failure_rate,
    check_offsets_contiguous,
    check_reward_range,
    check_staleness,
)
from schemas.events import ScoreRecorded
from schemas.ids import digest
from tests.pipelines.conftest import SPEC
from tests.pipelines.faults import Tampered, changed, column, first_of
from tests.training.world import RUN, member
from training.batch import seal
from training.manifest import Manifest, ManifestDisposition, load_manifest


def sealed_manifest(world: Tampered) -> Manifest:
    world.sink()
    sealed = seal(RUN, SPEC, lake=world.lake, artifacts=world.artifacts, log=world.log)
    assert sealed is not None
    return load_manifest(sealed.manifest.digest, world.artifacts)


def fill(world: Tampered) -> None:
    world.group("a", [1.0, 0.0])
    world.group("b", [0.25, 0.75])


def staleness(world: Tampered, manifest: Manifest) -> CheckOutcome:
    return check_staleness(manifest, world.artifacts.get(manifest.batch.digest))


def red(outcome: CheckOutcome, *words: str) -> None:
    assert not outcome.passed
    assert all(word in outcome.found for word in words), outcome.found


def test_an_honest_lake_passes_every_check(world: Tampered) -> None:
    fill(world)
    world.request("open", 2)
    manifest = sealed_manifest(world)
    lake = world.lake
    outcomes = [
        check_offsets_contiguous(lake), check_event_ids_unique(lake), check_reward_range(lake),
        check_infra_failure_rate(lake, RUN), check_accounts_closed(lake, RUN), check_accounts_closed(lake),
        staleness(world, manifest), check_batch_accounts(lake, manifest)]
    assert [outcome.name for outcome in outcomes if not outcome.passed] == []
    assert outcomes[0].metadata["offsets"] == sum(lake.snapshot().values())
    assert outcomes[4].metadata == {"pending": 6}
    assert outcomes[6].metadata["staleness"] == 0
    assert outcomes[7].metadata == {"trained": 4}


def test_an_empty_lake_has_nothing_wrong(world: Tampered) -> None:
    lake = world.lake
    assert all(outcome.passed for outcome in (
        check_offsets_contiguous(lake), check_event_ids_unique(lake), check_reward_range(lake),
        check_infra_failure_rate(lake), check_accounts_closed(lake), check_accounts_closed(lake, RUN)))


def test_a_dropped_event_is_missing(world: Tampered) -> None:
    fill(world)

    def drop(rows: list[Row]) -> list[Row]:
        del rows[first_of(rows, "events", type="turn.generated")]
        return rows

    world.pour(drop)
    red(check_offsets_contiguous(world.lake), "1 of trajectories-")


def test_a_partition_without_any_row_is_missing(world: Tampered) -> None:
    fill(world)
    world.pour(lambda rows: [row for row in rows if row.table != "events" or column(row, "topic") != "scores"])
    outcome = check_offsets_contiguous(world.lake)
    red(outcome, "scores-")
    assert outcome.metadata["missing"] == 4


def test_a_dead_letter_is_not_missing(world: Tampered) -> None:
    fill(world)

    def refuse(rows: list[Row]) -> list[Row]:
        index = first_of(rows, "events", type="turn.generated")
        place = [column(rows[index], name) for name in ("topic", "partition", "offset")]
        rows[index] = Row("dead_letters", (*place, "unreadable", b"", None))
        return rows

    world.pour(refuse)
    assert check_offsets_contiguous(world.lake).passed


def test_what_lies_before_the_last_batch_was_checked_then(world: Tampered) -> None:
    fill(world)

    def drop(rows: list[Row]) -> list[Row]:
        del rows[first_of(rows, "events", type="turn.generated")]
        return rows

    world.pour(drop)
    snapshot = world.lake.snapshot()
    assert check_offsets_contiguous(world.lake, since=snapshot).passed
    world.group("c", [1.0, 0.0])
    world.sink()
    later = check_offsets_contiguous(world.lake, since=snapshot)
    assert later.passed
    assert later.metadata["offsets"] == sum(world.lake.snapshot().values()) - sum(snapshot.values())


def test_an_event_that_is_there_twice_is_found(world: Tampered) -> None:
    fill(world)

    def repeat(rows: list[Row]) -> list[Row]:
        return [*rows, rows[first_of(rows, "events", type="score.recorded")]]

    world.pour(repeat)
    red(check_event_ids_unique(world.lake), "scores-", "(2 times)")


def test_an_admitted_event_with_anothers_id_is_found(world: Tampered) -> None:
    fill(world)

    def steal(rows: list[Row]) -> list[Row]:
        theirs = rows[first_of(rows, "events", type="episode.started")]
        index = first_of(rows, "events", type="episode.finished")
        rows[index] = changed(rows[index], id=column(theirs, "id"))
        return rows

    world.pour(steal)
    red(check_event_ids_unique(world.lake), "event ", "(2 times)")


@pytest.mark.parametrize(("status", "reward", "says"), [
    ("ok", 1.5, "reward 1.5"), ("ok", -0.1, "reward -0.1"), ("ok", None, "reward None"),
    ("ok", float("nan"), "reward None"), ("infra_failure", 0.0, "status infra_failure, reward 0.0")])
def test_a_planted_reward_is_found(world: Tampered, status: str, reward: float | None, says: str) -> None:
    fill(world)
    (episode_id,) = world.request("odd", 1)
    world.play(episode_id, status=None)
    world.append(ScoreRecorded(
        score_id="planted", episode_id=episode_id, submission=digest(b""), verifier="tools",
        verifier_digest=digest(b"v"), status=status, reward=reward, started_at=0, finished_at=1), episode_id)
    world.sink()
    red(check_reward_range(world.lake), "planted", episode_id, says)


def test_infrastructure_that_fails_often_is_found(world: Tampered) -> None:
    ids = world.request("a", 4)
    for episode_id in ids[:3]:
        world.play(episode_id)
    world.play(ids[3], termination="infra_failure")
    world.sink()
    red(check_infra_failure_rate(world.lake, RUN), "1 of 4", "25%", "oom: 1")
    assert check_infra_failure_rate(world.lake, RUN, limit=0.25).passed
    assert check_infra_failure_rate(world.lake, "other run").metadata["finished"] == 0
    assert check_infra_failure_rate(world.lake, RUN, since=world.lake.snapshot()).metadata["finished"] == 0


def test_an_episode_that_is_counted_twice_does_not_close(world: Tampered) -> None:
    fill(world)
    world.pour(lambda rows: [*rows, rows[first_of(rows, "episodes")]])
    for run in (RUN, None):
        red(check_accounts_closed(world.lake, run), f"run {RUN}")


def test_tokens_that_are_too_old_or_from_the_future_are_found(world: Tampered) -> None:
    fill(world)
    manifest = sealed_manifest(world)
    old = staleness(world, msgspec.structs.replace(manifest, version=2))
    red(old, "version 2 is trained on 12 tokens of versions 0 to 2", "1 behind may be")
    assert staleness(world, msgspec.structs.replace(manifest, version=1)).passed
    world.group("c", [1.0, 0.0], version=9)
    world.group("d", [1.0, 0.0], version=9)
    red(staleness(world, sealed_manifest(world)), "version 1", "1 to 9")


def test_a_batch_that_miscounts_is_found(world: Tampered) -> None:
    fill(world)
    manifest = sealed_manifest(world)
    inside = manifest.dispositions[0]

    def told(*dispositions: ManifestDisposition) -> CheckOutcome:
        return check_batch_accounts(world.lake, msgspec.structs.replace(manifest, dispositions=list(dispositions)))

    red(told(*manifest.dispositions, inside), inside.episode_id, "decided 2 times")
    red(told(*manifest.dispositions[1:]), inside.episode_id, "has rows but is not in the batch")
    stranger = ManifestDisposition(episode_id="nobody", disposition="surplus", reason="")
    red(told(*manifest.dispositions, stranger), "nobody was never requested")


def test_a_batch_that_takes_what_is_not_its_own_is_found(world: Tampered) -> None:
    fill(world)
    (held_out,) = world.request("held-out", 1, purpose="eval")
    world.play(held_out)
    first = sealed_manifest(world)
    world.group("c", [1.0, 0.0])
    world.group("d", [1.0, 0.0])
    second = sealed_manifest(world)
    assert check_batch_accounts(world.lake, second).passed
    again = ManifestDisposition(episode_id=member("a", 0), disposition="trained", reason="")
    evaluated = ManifestDisposition(episode_id=held_out, disposition="trained", reason="")
    red(check_batch_accounts(world.lake, msgspec.structs.replace(
        second, dispositions=[*second.dispositions, again, evaluated])),
        f"{again.episode_id} was decided by an earlier batch", f"{held_out} was requested for evaluation")
    assert first.step == 0


def test_a_partition_that_ends_too_early_is_missing_its_end(world: Tampered) -> None:
    fill(world)
    lost: list[tuple[object, ...]] = []

    def drop_last(rows: list[Row]) -> list[Row]:
        index = max(index for index, row in enumerate(rows)
                    if row.table == "events" and column(row, "type") == "episode.finished")
        lost.append(tuple(column(rows[index], name) for name in ("topic", "partition", "offset")))
        del rows[index]
        return rows

    world.pour(drop_last)
    topic, partition, offset = lost[0]
    since = {**world.lake.snapshot(), f"{topic}-{partition}": offset}
    outcome = check_offsets_contiguous(world.lake, since=since)  # type: ignore[arg-type]
    red(outcome, f"1 of {topic}-{partition} between {offset} and {offset}")
