"""Producers that die or pause: acknowledged turns are kept, every episode finishes once, a zombie changes nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from producers.ownership import Ownership
from producers.tail import Tail
from producers.writer import Lost, Writer
from schemas.admission import UNCLAIMED
from schemas.codec import make_event
from schemas.envelope import Event
from schemas.events import EpisodeFinished, EpisodeResumed, EpisodeStarted, SandboxInfo, ToolCalled, TurnGenerated
from schemas.ids import now_us
from schemas.topics import TRAJECTORIES
from tasks.tools import heldout_tasks
from tests.conftest import REPOSITORY
from tests.producers.world import World, json_task, json_turn

CHAINS = [task for task in heldout_tasks() if task.hidden["family"] == "chain"][:5]


@contextmanager
def child(world: World, failpoint: str = "") -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "HEADRACE_FAILPOINT": failpoint} if failpoint else dict(os.environ)
    process = subprocess.Popen([sys.executable, "-m", "tests.producers.child", str(world.home),
                                world.settings.log], cwd=REPOSITORY, env=environment, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def left_behind(session: int) -> list[psutil.Process]:
    """Processes of a session that do not end by themselves within some seconds."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session:
                found.append(process)
        except (ProcessLookupError, PermissionError):
            continue
    return list(psutil.wait_procs(found, timeout=10)[1])


@pytest.mark.parametrize("failpoint", [
    "producer:claimed", "producer:called@6", "producer:returned@9", "producer:finishing@2"])
def test_kill_minus_nine_in_mid_episode(world: World, failpoint: str) -> None:
    kill_and_go_on(world, failpoint)


def test_kill_minus_nine_on_kafka(kafka_world: World) -> None:
    kill_and_go_on(kafka_world, "producer:returned@20")


def kill_and_go_on(world: World, failpoint: str) -> None:
    world.backend  # noqa: B018 - a machine without sandboxes skips here
    requests = world.request(CHAINS, "scripted:reference", samples=2)
    with child(world, failpoint) as process:
        assert process.wait(timeout=60) == -signal.SIGKILL
        assert left_behind(process.pid) == []
    before = {request.episode_id: world.events(request.episode_id) for request in requests}
    assert any(before.values())
    world.produce()
    for request in requests:
        events, payloads = world.events(request.episode_id), world.payloads(request.episode_id)
        assert events[:len(before[request.episode_id])] == before[request.episode_id]
        assert [event.sequence for event in events] == list(range(len(events)))
        transcript = world.transcript(request.episode_id)
        assert (transcript.fenced, transcript.attempt) == (0, 1)
        assert [type(payload) for payload in payloads].count(EpisodeFinished) == 1
        assert [payload.turn for payload in payloads if isinstance(payload, TurnGenerated)] == [0, 1, 2, 3]
        assert len(transcript.sequences()) == 1
        assert transcript.finished is not None
        assert transcript.finished.termination == "completed"
        assert [call.status for call in world.submission(request.episode_id).calls] == ["ok"] * 4
    assert world.produce() == []


def test_a_call_without_a_return_is_made_again_in_the_workspace_before_it(world: World) -> None:
    turns = [json_turn("run", command="echo one >> file"), json_turn("run", command="echo two >> file; cat file"),
             json_turn("done")]
    world.backend  # noqa: B018
    request = world.request([json_task()], world.script({"task": turns}))[0]
    with child(world, "producer:called@2") as process:
        assert process.wait(timeout=60) == -signal.SIGKILL
    world.produce()
    transcript = world.transcript(request.episode_id)
    first, again = transcript.turns[1].calls
    assert first.returned is None
    assert (first.called.call_id, again.called.attempt) == (again.called.call_id, 2)
    assert again.returned is not None
    assert again.returned.output == "one\ntwo"
    assert [resumed.restart for resumed in transcript.resumes] == [False]


def test_a_zombie_changes_nothing(world: World) -> None:
    turns = [json_turn("run", command="sleep 0.5; echo done > file"), json_turn("done")]
    world.backend  # noqa: B018
    request = world.request([json_task()], world.script({"task": turns}))[0]
    subscription = world.log.subscribe([TRAJECTORIES])
    with child(world) as process:
        while not any(isinstance_of(record.event, ToolCalled) for record in subscription.poll(10)):
            assert process.poll() is None
        process.send_signal(signal.SIGSTOP)
        (finished,) = world.produce()
        events = world.events(request.episode_id)
        process.send_signal(signal.SIGCONT)
        assert process.wait(timeout=60) == 0
    subscription.close()
    assert finished.termination == "completed"
    assert world.transcript(request.episode_id).finished == finished
    later = world.events(request.episode_id)[len(events):]
    assert world.transcript(request.episode_id).fenced == len(later)
    assert world.produce() == []


def isinstance_of(event: Event | None, kind: type) -> bool:
    return event is not None and event.name == kind.NAME


def started() -> EpisodeStarted:
    return EpisodeStarted(run_id="r", task_id="t", policy="p", sandbox=SandboxInfo(backend="b"), at=now_us())


def resumed() -> EpisodeResumed:
    return EpisodeResumed(attempt=1, at=now_us())


def test_a_claim_that_was_overtaken_is_lost_and_its_owner_hears_of_it(world: World) -> None:
    async def run() -> tuple[str, list[str]]:
        lost: list[str] = []
        ownership = Ownership("mine", lost.append)
        tail = Tail("facts", lambda _: world.log.subscribe([TRAJECTORIES]),
                    lambda records: [ownership.see(record) for record in records] and None)
        writer = Writer(world.log, ownership, "e", "mine", UNCLAIMED)
        await writer.claim(started())
        other = make_event(resumed(), subject="e", source="other", sequence=1, time_us=now_us())
        await asyncio.wrap_future(world.log.append(TRAJECTORIES, [other]))
        with pytest.raises(Lost) as refusal:
            await writer.claim(resumed())
        await tail.close()
        return str(refusal.value), lost

    assert asyncio.run(run()) == ("duplicate_sequence", ["e"])
    assert world.transcript("e").claim.owner == "other"
