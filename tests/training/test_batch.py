"""Sealing: what goes into a batch, what is said about the rest, and that it happens once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from schemas.envelope import Event, wire_type
from schemas.events import BatchSealed, Sampling
from schemas.ids import digest, stable_id
from tests.training.world import OTHER_PREFIX, RUN, SECOND, World
from training.accounts import close_books
from training.advantages import group_advantages
from training.batch import seal, sealed_id
from training.batch_file import decode_batch
from training.manifest import Manifest, load_manifest
from training.spec import BatchSpec

SMALL = BatchSpec(groups=2, group_size=2, sequence_length=16, minibatches=1)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "home")
    yield world
    world.close()


def seal_next(world: World, spec: BatchSpec = SMALL) -> BatchSealed | None:
    world.sink()
    return seal(RUN, spec, lake=world.lake, artifacts=world.artifacts, log=world.log)


def sealed_manifest(world: World, spec: BatchSpec = SMALL) -> Manifest:
    sealed = seal_next(world, spec)
    assert sealed is not None
    return load_manifest(sealed.manifest.digest, world.artifacts)


def said(manifest: Manifest) -> dict[str, tuple[str, str]]:
    return {decision.episode_id: (decision.disposition, decision.reason) for decision in manifest.dispositions}


def test_a_batch_holds_the_tokens_rewards_and_advantages_of_complete_groups(world: World):
    first, second = world.group("a", [1.0, 0.0]), world.group("b", [0.25, 0.75])
    manifest = sealed_manifest(world)
    assert said(manifest) == dict.fromkeys(first + second, ("trained", ""))
    rows = {row.episode_id: row for row in manifest.rows}
    assert [rows[episode_id].reward for episode_id in first + second] == [1.0, 0.0, 0.25, 0.75]
    assert [rows[episode_id].advantage for episode_id in first] == group_advantages([1.0, 0.0]).tolist()
    batch = {(tokens.sequence, tokens.position): tokens for tokens in decode_batch(
        world.artifacts.get(manifest.batch.digest))}
    row = rows[first[1]]
    tokens = batch[row.sequence, row.position]
    assert tokens.ids.tolist() == [5, 6, 7, 9, 9, 10]
    assert tokens.trained.tolist() == [False, False, True, True, False, True]
    assert tokens.logprobs.tolist() == [0, 0, -0.5, -0.5, 0, -0.5]
    assert tokens.versions.tolist() == [-1, -1, 0, 0, -1, 0]
    assert tokens.advantage == row.advantage
    assert (row.tokens, row.trained_tokens) == (6, 3)


def test_nothing_is_sealed_before_the_groups_are_complete(world: World):
    world.group("a", [1.0, 0.0])
    left, right = world.request("b", 2)
    world.play(left, 1.0)
    assert seal_next(world) is None
    world.play(right, 0.0, status=None)
    assert seal_next(world) is None
    world.score(right, 0.0)
    assert seal_next(world) is not None


def test_an_open_group_does_not_hold_up_later_ones(world: World):
    world.request("open", 2)
    later = world.group("b", [1.0, 0.0]) + world.group("c", [1.0, 0.0])
    assert said(sealed_manifest(world)) == dict.fromkeys(later, ("trained", ""))


def test_groups_are_taken_in_the_order_of_their_requests_and_no_more_than_asked(world: World):
    names = {name: world.request(name, 2) for name in "abc"}
    for name in "cba":
        for episode_id, reward in zip(names[name], [1.0, 0.0], strict=True):
            world.play(episode_id, reward)
    assert said(sealed_manifest(world)) == dict.fromkeys(names["a"] + names["b"], ("trained", ""))


def test_a_step_is_sealed_once_whoever_asks_and_however_often(world: World):
    world.group("a", [1.0, 0.0])
    world.group("b", [1.0, 0.0])
    first = seal_next(world)
    # More could be taken by now, but the lake does not hold `batch.sealed` yet.
    world.group("c", [1.0, 0.0])
    again = seal(RUN, SMALL, lake=world.lake, artifacts=world.artifacts, log=world.log)
    assert first is not None and again == first
    assert world.log.ends(["training"]) == {("training", 0): 1}
    assert seal_next(world) is None
    world.group("d", [1.0, 0.0])
    second = seal_next(world)
    assert second is not None and second.step == 1
    both = [load_manifest(sealed.manifest.digest, world.artifacts) for sealed in (first, second)]
    assert set(said(both[0])).isdisjoint(said(both[1]))


@pytest.mark.parametrize("sunk", [False, True])
def test_garbage_that_bears_the_name_of_a_batch_does_not_stop_a_step(world: World, sunk: bool):
    world.group("a", [1.0, 0.0])
    world.group("b", [1.0, 0.0])
    for name in (sealed_id(RUN, 0, digest(b"")), stable_id("batch.sealed", RUN, 0)):
        world.log.append("training", [Event(name, "test", wire_type("batch.sealed"), RUN, 0, 1, b"\xc1")]).result()
    if sunk:
        world.sink()
    sealed = seal(RUN, SMALL, lake=world.lake, artifacts=world.artifacts, log=world.log) if sunk else seal_next(world)
    assert sealed is not None and sealed.step == 0
    assert seal(RUN, SMALL, lake=world.lake, artifacts=world.artifacts, log=world.log) == sealed


def test_failed_members_leave_their_group_usable_and_keep_their_own_disposition(world: World):
    ids = world.request("a", 4)
    world.play(ids[0], 1.0)
    world.play(ids[1], 0.0)
    world.play(ids[2], termination="infra_failure")
    world.play(ids[3], status="verifier_error")
    others = world.group("b", [1.0, 0.0, 1.0, 0.0])
    spec = BatchSpec(groups=2, group_size=4, sequence_length=16, minibatches=1)
    assert said(sealed_manifest(world, spec)) == dict.fromkeys(ids[:2] + others, ("trained", ""))
    world.sink()
    assert close_books(RUN, world.lake) == {"infra_failed": 1, "trained": 6, "unscored": 1}


def test_a_group_that_failed_as_a_whole_counts_once(world: World):
    for episode_id in world.request("a", 2):
        world.play(episode_id, termination="cancelled")
    whole = world.group("b", [1.0, 0.0])
    assert said(sealed_manifest(world)) == dict.fromkeys(whole, ("trained", ""))
    world.group("c", [1.0, 0.0])
    assert seal_next(world) is None
    world.group("d", [1.0, 0.0])
    assert seal_next(world) is not None
    world.sink()
    assert close_books(RUN, world.lake) == {"cancelled": 2, "trained": 6}


def test_one_member_left_is_too_few(world: World):
    left, right = world.request("a", 2)
    world.play(left, 1.0)
    world.play(right, termination="infra_failure")
    whole = world.group("b", [1.0, 0.0])
    assert said(sealed_manifest(world)) == {
        left: ("filtered", "group_too_small"), **dict.fromkeys(whole, ("trained", ""))}


def test_equal_rewards_are_filtered_and_a_batch_may_be_empty(world: World):
    ids = world.group("a", [0.5, 0.5]) + world.group("b", [0.0, 0.0])
    manifest = sealed_manifest(world)
    assert said(manifest) == dict.fromkeys(ids, ("filtered", "equal_rewards"))
    assert manifest.rows == [] and decode_batch(world.artifacts.get(manifest.batch.digest)) == []


def test_stale_members_are_named_and_make_room_for_another_group(world: World):
    old = world.group("a", [1.0, 0.0], version=-2)
    fresh = world.group("b", [1.0, 0.0], version=-1)
    assert seal_next(world) is None
    other = world.group("c", [1.0, 0.0])
    assert said(sealed_manifest(world)) == dict.fromkeys(old, ("stale", "max_staleness")) | dict.fromkeys(
        fresh + other, ("trained", ""))


def test_members_beyond_the_group_size_are_surplus_also_later(world: World):
    ids = world.request("a", 4)
    for index, episode_id in enumerate(ids[:3]):
        world.play(episode_id, float(index))
    whole = world.group("b", [1.0, 0.0])
    assert said(sealed_manifest(world)) == {
        ids[2]: ("surplus", "group_full"), ids[3]: ("surplus", "group_full"),
        **dict.fromkeys(ids[:2] + whole, ("trained", ""))}
    late = world.request("a", 1, first=4)
    world.group("c", [1.0, 0.0])
    world.group("d", [1.0, 0.0])
    assert said(sealed_manifest(world))[late[0]] == ("surplus", "group_closed")


def test_event_time_closes_a_group_that_waits_for_a_member(world: World):
    ids = world.request("a", 3)
    world.play(ids[0], 1.0)
    world.play(ids[1], 0.0)
    spec = BatchSpec(groups=2, group_size=3, sequence_length=16, minibatches=1, group_timeout_s=60.0)
    world.group("b", [1.0, 0.0, 0.5])
    assert seal_next(world, spec) is None
    world.now_us += 61 * SECOND
    world.request("later", 1)
    assert said(sealed_manifest(world, spec))[ids[2]] == ("surplus", "group_timed_out")


def test_a_turn_sampled_after_other_tokens_is_masked_and_its_reward_still_counts(world: World):
    ids = world.request("a", 3)
    for episode_id, reward, prefix in zip(ids, [1.0, 0.0, 0.5], [None, None, OTHER_PREFIX], strict=True):
        world.play(episode_id, reward, prefix=prefix)
    world.group("b", [1.0, 0.0, 0.5])
    spec = BatchSpec(groups=2, group_size=3, sequence_length=16, minibatches=1)
    manifest = sealed_manifest(world, spec)
    assert said(manifest)[ids[2]] == ("masked", "prefix_mismatch")
    rows = {row.episode_id: row for row in manifest.rows}
    assert (rows[ids[2]].tokens, rows[ids[2]].trained_tokens) == (6, 0)
    assert rows[ids[0]].advantage == group_advantages([1.0, 0.0, 0.5])[0]


def test_turns_without_logprobs_and_too_long_ones_are_named_never_cut(world: World):
    scripted, left, right = world.request("a", 3)
    world.play(scripted, 1.0, logprobs=False)
    world.play(left, 1.0)
    world.play(right, 0.0)
    long, short, low = world.request("b", 3)
    world.play(long, 1.0, turns=[([1] * 10, [2] * 7)])
    world.play(short, 1.0)
    world.play(low, 0.0)
    spec = BatchSpec(groups=2, group_size=3, sequence_length=16, minibatches=1)
    manifest = sealed_manifest(world, spec)
    assert said(manifest) == {
        scripted: ("filtered", "no_logprobs"), long: ("masked", "too_long"),
        **dict.fromkeys([left, right, short, low], ("trained", ""))}
    rows = {row.episode_id: row for row in manifest.rows}
    assert (rows[long].tokens, rows[long].trained_tokens) == (17, 0)
    assert rows[left].advantage == group_advantages([1.0, 0.0])[0]


@pytest.mark.parametrize("sampling", [Sampling(temperature=0.5), Sampling(top_p=0.9), Sampling(top_k=5)])
def test_turns_of_another_distribution_than_the_learners_are_named(world: World, sampling: Sampling):
    first, second, third = world.request("a", 3)
    world.play(first, 1.0, sampler=Sampling(seed=7).distribution)
    world.play(second, 0.0, sampler="an engine that does not say")
    world.play(third, 0.5, sampler=sampling.distribution)
    world.group("b", [1.0, 0.0, 0.5])
    manifest = sealed_manifest(world, msgspec.structs.replace(SMALL, group_size=3))
    assert [said(manifest)[episode_id] for episode_id in (first, second, third)] == [
        ("trained", ""), ("trained", ""), ("filtered", "other_distribution")]


def test_each_segment_is_a_sequence_and_a_first_token_is_never_trained(world: World):
    ids = world.request("a", 2)
    for episode_id, reward in zip(ids, [1.0, 0.0], strict=True):
        world.play(episode_id, reward, turns=[([], [3, 4]), ([5], [6])], segments=[0, 1])
    world.group("b", [1.0, 0.0])
    manifest = sealed_manifest(world)
    rows = [(row.segment, row.tokens, row.trained_tokens) for row in manifest.rows if row.episode_id == ids[0]]
    assert sorted(rows) == [(0, 2, 1), (1, 2, 1)]


def test_a_segment_without_a_token_is_an_empty_sequence(world: World):
    ids = world.request("a", 2)
    for episode_id, reward in zip(ids, [1.0, 0.0], strict=True):
        world.play(episode_id, reward, turns=[([5], [3, 4]), ([], [])], segments=[0, 1])
    world.group("b", [1.0, 0.0])
    manifest = sealed_manifest(world)
    rows = [(row.segment, row.tokens, row.trained_tokens) for row in manifest.rows if row.episode_id == ids[0]]
    assert sorted(rows) == [(0, 3, 2), (1, 0, 0)]


def test_evaluation_is_never_trained_on(world: World):
    for episode_id in world.request("e", 2, purpose="eval"):
        world.play(episode_id, 1.0)
    world.group("a", [1.0, 0.0])
    assert seal_next(world) is None
    ids = world.group("b", [1.0, 0.0])
    assert set(ids) <= set(said(sealed_manifest(world)))
    world.sink()
    assert close_books(RUN, world.lake) == {"evaluated": 2, "trained": 4}


def test_minibatches_split_the_sequences_and_rows_are_never_too_long(world: World):
    for name in "abcd":
        world.group(name, [1.0, 0.0])
    spec = BatchSpec(groups=4, group_size=2, sequence_length=12, minibatches=2)
    manifest = sealed_manifest(world, spec)
    tokens = decode_batch(world.artifacts.get(manifest.batch.digest))
    assert sorted(part.minibatch for part in tokens) == [0] * 4 + [1] * 4
    rows: dict[int, list[tuple[int, int, int]]] = {}
    for part in tokens:
        rows.setdefault(part.sequence, []).append((part.position, part.position + len(part.ids), part.minibatch))
    for row in rows.values():
        ends = sorted(row)
        assert all(before[1] == after[0] for before, after in pairwise(ends))
        assert ends[0][0] == 0 and ends[-1][1] <= 12 and len({minibatch for *_, minibatch in ends}) == 1
    assert len(rows) < len(tokens)


def test_a_supervised_batch_takes_scripted_episodes_whatever_their_group(world: World):
    ids = world.request("a", 1, policy="scripted:experts") + world.request("b", 1, policy="scripted:experts")
    for episode_id in ids:
        world.play(episode_id, 0.5, logprobs=False)
    sampled = world.group("c", [1.0, 0.0])
    failed = world.request("d", 1, policy="scripted:experts")
    spec = BatchSpec(algorithm="sft", episodes=3, policy="scripted", sequence_length=16)
    assert seal_next(world, spec) is None
    world.play(failed[0], termination="infra_failure")
    manifest = sealed_manifest(world, spec)
    assert said(manifest) == dict.fromkeys(ids, ("trained", ""))
    assert [row.advantage for row in manifest.rows] == [None, None]
    world.sink()
    assert close_books(RUN, world.lake) == {"infra_failed": 1, "pending": len(sampled), "trained": 2}


def test_shuffled_rewards_change_advantages_but_not_rewards(world: World):
    ids = [*world.group("a", [1.0, 0.0]), *world.group("b", [0.25, 0.75]), *world.group("c", [0.1, 0.9])]
    spec = BatchSpec(groups=3, group_size=2, sequence_length=16, shuffle_rewards=True, seed=3)
    manifest = sealed_manifest(world, spec)
    rows = {row.episode_id: row for row in manifest.rows}
    assert [rows[episode_id].reward for episode_id in ids] == [1.0, 0.0, 0.25, 0.75, 0.1, 0.9]
    honest = [*group_advantages([1.0, 0.0]), *group_advantages([0.25, 0.75]), *group_advantages([0.1, 0.9])]
    assert [rows[episode_id].advantage for episode_id in ids] != honest
