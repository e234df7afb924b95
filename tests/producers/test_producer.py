"""The producer: what it starts and in which order, which weights it samples from, what it refuses."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

from artifacts.store import DirectoryStore
from producers.producer import Producer
from producers.shift import Done
from schemas.codec import decode_payload
from schemas.events import Sampling, TurnGenerated, WeightsPublished
from schemas.ids import now_us
from schemas.topics import REQUESTS, TRAINING, TRAJECTORIES
from schemas.transcript import Transcript
from tasks.tools import heldout_tasks, training_tasks
from tests.producers.late import Late
from tests.producers.models import random_model
from tests.producers.world import World

SHORT = Sampling(temperature=1.0, max_tokens=4)


def publish(world: World, version: int, directory: Path, run_id: str = "run") -> None:
    world.write(WeightsPublished(run_id=run_id, version=version, digest="", path=str(directory), at=now_us()), run_id)


def versions(transcript: Transcript) -> set[int]:
    return {version for turn in transcript.turns for version, _ in turn.generated.versions}


def test_higher_priority_starts_first_then_first_come(world: World) -> None:
    world.set(producer_concurrency=1)
    tasks = heldout_tasks()[:6]
    low = world.request(tasks[:2], "scripted:empty", priority=0)
    high = world.request(tasks[2:4], "scripted:empty", priority=5)
    more = world.request(tasks[4:], "scripted:empty", priority=0)
    world.produce()
    asked = [{request.episode_id for request in requests} for requests in (high, low, more)]
    assert [set(world.order[start:start + 2]) for start in (0, 2, 4)] == asked


def test_asking_twice_with_a_group_key_is_asking_once(world: World) -> None:
    tasks = training_tasks(0, 0, 4)
    first = world.request(tasks, "scripted:reference", samples=2, group_key="step-0")
    again = world.request(tasks, "scripted:reference", samples=2, group_key="step-0")
    assert [request.episode_id for request in first] == [request.episode_id for request in again]
    assert len({request.group_id for request in first}) == 4
    assert len({request.episode_id for request in first}) == 8
    assert len(world.produce()) == 8
    other = world.request(tasks, "scripted:reference", samples=2, group_key="step-1")
    assert not {request.episode_id for request in first} & {request.episode_id for request in other}


def test_without_a_group_key_every_request_is_new(world: World) -> None:
    tasks = training_tasks(0, 0, 1)
    assert world.request(tasks, "scripted:empty")[0].episode_id != world.request(tasks, "scripted:empty")[0].episode_id


def test_the_committed_offset_is_the_lowest_unfinished_request(world: World) -> None:
    requests = world.request(training_tasks(0, 0, 8), "scripted:reference")
    world.produce()
    member = world.log.subscribe([REQUESTS], "produce", member="test")
    while len(member.assignment()) < world.log.partitions(REQUESTS):
        assert member.poll(1.0) == []
    assert {part: member.position(part) for part in member.assignment()} == world.log.ends([REQUESTS])
    member.close()
    assert len(requests) == 8


def test_a_producer_stops_when_asked_and_the_next_one_goes_on(world: World) -> None:
    world.set(producer_concurrency=2)
    requests = world.request(training_tasks(0, 0, 12), "scripted:reference")
    stop = threading.Event()
    Producer(world.log, world.artifacts, world.backend, world.settings, on_finished=lambda _: stop.set()).run(stop)
    finished = [request for request in requests if world.transcript(request.episode_id).finished]
    assert 0 < len(finished) < 12
    assert len(world.produce()) == 12 - len(finished)
    assert all(world.transcript(request.episode_id).attempt == 1 for request in requests)


def test_the_newest_published_weights_are_sampled_or_exactly_the_wanted_ones(world: World, tmp_path: Path) -> None:
    base = random_model(tmp_path / "base", 0)
    tasks = training_tasks(0, 0, 2)
    policy = f"transformers:{base}"
    unpublished = world.request(tasks[:1], policy, sampling=SHORT, run_id="other")
    publish(world, 0, base)
    publish(world, 1, random_model(tmp_path / "one", 1))
    publish(world, 2, random_model(tmp_path / "two", 2))
    publish(world, 2, tmp_path / "never read: the first of a version counts")
    newest = world.request(tasks, policy, sampling=SHORT)
    exact = world.request(tasks, policy, sampling=SHORT, version=1)
    world.produce()
    for requests, version in ((newest, 2), (exact, 1), (unpublished, 0)):
        for request in requests:
            assert versions(world.transcript(request.episode_id)) == {version}


def test_equal_seeds_give_equal_episodes(world: World, tmp_path: Path) -> None:
    policy = f"transformers:{random_model(tmp_path / 'base', 0)}"
    pairs = [world.request(training_tasks(0, 0, 4), policy, samples=2, sampling=SHORT, run_id=run) for run in "ab"]
    world.produce()
    texts = [[[turn.generated.text for turn in world.transcript(request.episode_id).turns] for request in requests]
             for requests in pairs]
    assert texts[0] == texts[1]
    assert texts[0][0] != texts[0][1]


def test_sampled_turns_carry_one_finite_logprob_a_token(world: World, tmp_path: Path) -> None:
    policy = f"transformers:{random_model(tmp_path / 'base', 0)}"
    request = world.request(training_tasks(0, 0, 1), policy, sampling=SHORT)[0]
    world.produce()
    (sequence,) = world.transcript(request.episode_id).sequences()
    for generated, logprob in zip(sequence.generated, sequence.logprobs, strict=True):
        assert (logprob is not None and logprob <= 0) == generated


def test_a_turn_with_nan_logprobs_is_refused(world: World, tmp_path: Path) -> None:
    directory = random_model(tmp_path / "nan", 0)
    tensors = load_file(directory / "model.safetensors")
    tensors["model.norm.weight"] = torch.full_like(tensors["model.norm.weight"], float("nan"))
    save_file(tensors, directory / "model.safetensors")
    request = world.request(training_tasks(0, 0, 1), f"transformers:{directory}", sampling=SHORT)[0]
    (finished,) = world.produce()
    assert (finished.termination, finished.turns) == ("policy_error", 0)
    assert world.transcript(request.episode_id).turns == []


def test_weights_that_never_come_are_infrastructures_failure(
        world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("producers.desk.WEIGHTS_WAIT_S", 0.1)
    policy = f"transformers:{random_model(tmp_path / 'base', 0)}"
    world.request(training_tasks(0, 0, 1), policy, sampling=SHORT, version=9)
    (finished,) = world.produce()
    assert (finished.termination, finished.failure_kind) == ("infra_failure", "weights_missing")
    assert finished.submission is None


def test_weights_that_cannot_be_read_are_infrastructures_failure(world: World, tmp_path: Path) -> None:
    directory = random_model(tmp_path / "base", 0)
    (directory / "model.safetensors").write_bytes(b"damaged")
    world.request(training_tasks(0, 0, 1), f"transformers:{directory}", sampling=SHORT)
    (finished,) = world.produce()
    assert (finished.termination, finished.failure_kind, finished.submission) == ("infra_failure", "unavailable", None)


def test_an_unknown_policy_is_infrastructures_failure(world: World) -> None:
    world.request(training_tasks(0, 0, 1), "magic")
    (finished,) = world.produce()
    assert (finished.termination, finished.failure_kind) == ("infra_failure", "config")


def test_a_task_of_another_home_on_the_log_is_left_to_that_one(
        world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is claimed while its own home may come. What nobody has is a failure in the end."""
    world.request(training_tasks(0, 0, 1), "scripted:reference")
    elsewhere = DirectoryStore(tmp_path / "elsewhere")
    stop = threading.Event()
    monkeypatch.setattr(caplog.handler, "emit", lambda record: stop.set() if "cannot be set up" in record.msg else None)
    Producer(world.log, elsewhere, world.backend, world.settings).run(stop)
    assert not any(world.log.ends([TRAJECTORIES]).values())
    (finished,) = world.produce()
    assert finished.termination == "completed"
    world.request(training_tasks(0, 1, 1), "scripted:reference")
    monkeypatch.setattr("producers.shift.RETAKE_S", 0.01)
    found: list[Done] = []
    Producer(world.log, elsewhere, world.backend, world.settings, on_finished=found.append).run(
        threading.Event(), until_idle=True)
    (done,) = found
    assert (done.finished.termination, done.finished.failure_kind) == ("infra_failure", "artifact")


def test_a_request_that_cannot_be_read_is_passed_over_and_nobody_waits_for_its_episode(world: World) -> None:
    from schemas.envelope import Event, wire_type

    damaged = Event(id="x", source="s", type=wire_type("episode.requested"), subject="x", sequence=0, time_us=1,
                    data=msgspec.msgpack.encode({"episode_id": 3}))
    world.log.append(REQUESTS, [damaged]).result()
    world.request(training_tasks(0, 0, 2), "scripted:empty")
    assert len(world.produce()) == 2


def test_a_turn_that_was_cut_off_is_not_run_by_halves(world: World, tmp_path: Path) -> None:
    policy = f"transformers:{random_model(tmp_path / 'base', 0)}"
    request = world.request(training_tasks(0, 0, 1), policy, sampling=SHORT)[0]
    world.produce()
    turns = world.transcript(request.episode_id).turns
    cut = [turn for turn in turns if turn.generated.finish_reason == "length"]
    assert cut
    assert {call.returned.status for turn in cut for call in turn.calls if call.returned} == {"malformed"}
    assert [call.called.arguments for turn in cut for call in turn.calls] == [turn.generated.text for turn in cut]


def test_what_was_published_and_finished_before_a_request_is_known_before_it_starts(
        world: World, tmp_path: Path) -> None:
    base = random_model(tmp_path / "base", 0)
    publish(world, 0, base)
    publish(world, 3, random_model(tmp_path / "three", 3))
    request = world.request(training_tasks(0, 0, 1), f"transformers:{base}", sampling=SHORT)[0]
    Producer(Late(world.log, TRAINING), world.artifacts, world.backend, world.settings).run(
        threading.Event(), until_idle=True)
    assert versions(world.transcript(request.episode_id)) == {3}


def test_a_turn_costs_four_bytes_a_context_and_eight_a_generated_token_and_little_else(
        world: World, tmp_path: Path) -> None:
    policy = f"transformers:{random_model(tmp_path / 'base', 0)}"
    request = world.request(training_tasks(0, 0, 1), policy, sampling=SHORT)[0]
    world.produce()
    for event in world.events(request.episode_id):
        turn = decode_payload(event)
        if isinstance(turn, TurnGenerated):
            buffers = len(turn.context) + len(turn.generated) + len(turn.logprobs or b"") + len(turn.text.encode())
            assert len(event.data) - buffers <= 400
