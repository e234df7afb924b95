"""One episode end to end: real sandbox, real log. Failures of the policy are data that it sees."""

from __future__ import annotations

import pytest

from schemas.errors import SandboxError
from schemas.events import CancelRequested, EpisodeFinished, EpisodeStarted, ToolCalled, ToolReturned, TurnGenerated
from schemas.tokens import unpack_ids
from tasks.task import Task
from tasks.tools import heldout_tasks
from tests.producers.breaking import Breaking
from tests.producers.world import World, json_task, json_turn, limits


def tool_task(family: str) -> Task:
    return next(task for task in heldout_tasks() if task.hidden["family"] == family)


def test_an_episode_from_request_to_submission(world: World) -> None:
    task = tool_task("chain")
    request = world.request([task], "scripted:reference")[0]
    (finished,) = world.produce()
    payloads = world.payloads(request.episode_id)
    kinds = [type(payload) for payload in payloads]
    assert kinds == [EpisodeStarted, *[TurnGenerated, ToolCalled, ToolReturned] * 4, EpisodeFinished]
    transcript = world.transcript(request.episode_id)
    assert transcript.finished == finished
    assert (finished.termination, finished.turns, finished.tool_calls) == ("completed", 4, 4)
    calls = [call for turn in transcript.turns for call in turn.calls]
    assert [call.called.tool for call in calls] == ["cat", "calc", "write", "done"]
    returned = [call.returned for call in calls if call.returned]
    assert [one.output for one in returned[1:3]] == [task.hidden["want"], "ok"]
    assert [one.workspace is None for one in returned] == [True, True, False, True]
    submission = world.submission(request.episode_id)
    assert submission.workspace == returned[2].workspace == finished.workspace
    assert [call.tool for call in submission.calls] == ["cat", "calc", "write", "done"]
    assert submission.task_digest == request.task_digest


def test_tokens_are_one_sequence_and_are_counted(world: World) -> None:
    request = world.request([tool_task("calc")], "scripted:reference")[0]
    (finished,) = world.produce()
    (sequence,) = world.transcript(request.episode_id).sequences()
    assert finished.context_token_count == sequence.generated.count(False)
    assert finished.generated_token_count == sequence.generated.count(True)
    assert set(sequence.logprobs) == {None}
    assert set(sequence.versions) == {-1}
    assert [sequence.ids[0], sequence.ids[-1]] == [2, 1]


@pytest.mark.parametrize(("turn", "status", "shown"), [
    ("fly out.txt", "unknown_tool", "error: unknown_tool"),
    ("done now", "malformed", "error: malformed"),
    ("  ", "malformed", "error: malformed"),
    ("calc 1/0", "error", "error"),
    ("cat ../../etc/passwd", "error", "error"),
])
def test_a_bad_line_is_a_typed_error_that_the_policy_sees(world: World, turn: str, status: str, shown: str) -> None:
    transcript = world.play(tool_task("calc"), [turn, "done"])
    (call,), last = (one.calls for one in transcript.turns)
    assert call.returned is not None
    assert (call.returned.status, call.returned.output) == (status, shown)
    assert transcript.turns[0].generated.text == turn
    assert last[0].returned is not None
    assert last[0].returned.status == "ok"


@pytest.mark.parametrize(("turn", "status", "told"), [
    ("{not json", "malformed", "JSON is malformed"),
    ('{"tool": "run"}', "malformed", "$.command is missing"),
    (json_turn("run", command=3), "malformed", "$.command must be string"),
    (json_turn("run", command="true", shell=1), "malformed", "$.shell is not known"),
    (json_turn("fly"), "unknown_tool", "'fly' is not one of"),
    (json_turn("write_file", path="../x", content=""), "denied", "must lie in the workspace"),
    (json_turn("read_file", path="/etc/passwd"), "denied", "must lie in the workspace"),
    (json_turn("run", command="echo one; exit 3"), "error", "one\n[exit code 3]"),
    (json_turn("run", command="echo early; sleep 30"), "timeout", "early\nerror: timeout: after 1 s"),
])
def test_a_bad_json_call_says_why(world: World, turn: str, status: str, told: str) -> None:
    transcript = world.set(tool_deadline_s=1.0).play(json_task(), [turn, json_turn("done")])
    call = transcript.turns[0].calls[0]
    assert call.returned is not None
    assert call.returned.status == status
    assert told in call.returned.output
    assert call.called.arguments in f"{turn} {{}}"


def test_a_limit_of_processes_that_was_met_is_told(world: World) -> None:
    world.set(sandbox_pids=20)
    if "pids" not in world.backend.capabilities:
        pytest.skip("no cgroup can be made here: rlimits stand in")
    turn = json_turn("run", command="for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21; do sleep 9 & done")
    call = world.play(json_task(), [turn, json_turn("done")]).turns[0].calls[0]
    assert call.returned is not None and call.returned.status == "error"
    assert "[the limit of 20 processes was met]\n[exit code" in call.returned.output


def test_json_tools_work_in_one_workspace_and_done_carries_the_answer(world: World) -> None:
    several = "[" + ", ".join([json_turn("write_file", path="src/a b.py", content="print('é')\n"),
                               json_turn("run", command="python3 'src/a b.py'; cat given.txt")]) + "]"
    task = json_task(files={"given.txt": b"given"})
    transcript = world.play(task, [several, json_turn("read_file", path="src/a b.py"), json_turn("done", answer="42")])
    outputs = [call.returned.output for turn in transcript.turns for call in turn.calls if call.returned]
    assert outputs == ["", "é\ngiven", "print('é')", ""]
    assert transcript.finished is not None
    assert (transcript.finished.answer, transcript.finished.termination) == ("42", "completed")
    assert world.submission(transcript.episode_id).answer == "42"


def test_nothing_but_the_workspace_goes_from_one_call_to_the_next(world: World) -> None:
    """What a call left running could change the workspace after its digest was taken, or answer for a later call."""
    first = "mkdir deep; cd deep; export X=1; (setsid nohup sleep 6173 >/dev/null 2>&1 &); sleep 6173 & echo begun"
    second = "pwd; echo X=$X; cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 617[3]'"
    transcript = world.play(json_task(), [json_turn("run", command=first), json_turn("run", command=second),
                                          json_turn("done")])
    begun, after = (turn.calls[0].returned for turn in transcript.turns[:2])
    assert begun is not None and begun.output == "begun"
    assert after is not None and after.output == "/workspace\nX=\n0\n[exit code 1]"


def test_calls_after_done_are_not_made(world: World) -> None:
    both = f"[{json_turn('done')}, {json_turn('run', command='touch late')}]"
    transcript = world.play(json_task(), [both])
    assert [call.called.tool for call in transcript.turns[0].calls] == ["done"]


def test_long_output_is_cut_for_the_policy_and_kept_whole(world: World) -> None:
    transcript = world.play(json_task(), [json_turn("run", command="seq 1 9000"), json_turn("done")])
    returned = transcript.turns[0].calls[0].returned
    assert returned is not None
    assert returned.truncated
    assert returned.output.startswith("1\n2\n")
    assert returned.output.endswith("\n9000")
    assert len(returned.output.encode()) <= 16 << 10
    assert returned.output_ref is not None
    assert world.artifacts.get(returned.output_ref.digest).decode() == "".join(f"{n}\n" for n in range(1, 9001))
    assert returned.output_bytes == returned.output_ref.size_bytes


@pytest.mark.parametrize(("changes", "termination", "turns"), [
    ({"max_turns": 2}, "max_turns", 2),
    ({"token_budget": 90}, "token_budget", 2),
    ({"wall_clock_s": 0.5}, "wall_clock", 1),
])
def test_limits_end_an_episode_with_a_submission(
        world: World, changes: dict[str, float], termination: str, turns: int) -> None:
    looping = [json_turn("run", command="sleep 0.6")] * 5
    transcript = world.play(json_task(), looping, limits=limits(**changes))
    assert transcript.finished is not None
    assert (transcript.finished.termination, transcript.finished.turns) == (termination, turns)
    assert transcript.finished.submission is not None


def test_a_script_that_ends_too_early_is_the_policys_error(world: World) -> None:
    transcript = world.play(json_task(), [json_turn("run", command="echo kept > file")])
    assert transcript.finished is not None
    assert (transcript.finished.termination, transcript.finished.turns) == ("policy_error", 1)
    assert world.submission(transcript.episode_id).workspace == transcript.workspace


def test_a_broken_sandbox_is_replaced_and_every_attempt_is_an_event(world: World) -> None:
    task = tool_task("calc")
    request = world.request([task], "scripted:reference")[0]
    (finished,) = world.produce(Breaking(world.backend, {2: SandboxError("gone", kind="agent_died")}))
    transcript = world.transcript(request.episode_id)
    assert (finished.termination, transcript.attempt) == ("completed", 1)
    tries = [(call.called.tool, call.called.attempt, call.returned.status) for turn in transcript.turns
             for call in turn.calls if call.returned]
    assert tries == [("calc", 1, "ok"), ("write", 1, "sandbox_broken"), ("write", 2, "ok"), ("done", 1, "ok")]
    assert [call.status for call in world.submission(request.episode_id).calls] == ["ok"] * 3


def test_infrastructure_that_fails_twice_restarts_the_episode(world: World) -> None:
    request = world.request([tool_task("calc")], "scripted:reference")[0]
    broken = {2: SandboxError("gone", kind="agent_died"), 3: SandboxError("gone", kind="agent_died")}
    (finished,) = world.produce(Breaking(world.backend, broken))
    transcript = world.transcript(request.episode_id)
    assert (finished.termination, transcript.attempt) == ("completed", 2)
    assert [(resumed.restart, resumed.reason) for resumed in transcript.resumes] == [(True, "agent_died")]
    assert finished.turns == len(transcript.turns) == 3


@pytest.mark.parametrize("where", ["acquire", "exec"])
def test_an_infrastructure_failure_never_becomes_a_reward(world: World, where: str) -> None:
    world.set(producer_attempts=2)
    request = world.request([tool_task("calc")], "scripted:reference")[0]
    (finished,) = world.produce(Breaking(world.backend, always=where))
    assert (finished.termination, finished.submission) == ("infra_failure", None)
    assert finished.failure_kind == f"broken_{where}"
    assert world.transcript(request.episode_id).attempt == 2


def test_a_task_that_is_not_in_the_store_is_infrastructures_failure(world: World) -> None:
    request = world.request([tool_task("calc")], "scripted:reference")[0]
    world.artifacts.path(request.task_digest).write_bytes(b"damaged")
    (finished,) = world.produce()
    assert (finished.termination, finished.failure_kind, finished.submission) == ("infra_failure", "artifact", None)


def test_a_cancel_ends_an_episode_without_a_submission(world: World) -> None:
    request = world.request([tool_task("calc")], "scripted:reference")[0]
    world.write(CancelRequested(episode_id=request.episode_id, reason="test"), request.episode_id)
    (finished,) = world.produce()
    assert (finished.termination, finished.turns, finished.submission) == ("cancelled", 0, None)


def test_a_cancel_after_the_finish_is_void(world: World) -> None:
    transcript = world.play(tool_task("calc"), ["done"])
    world.write(CancelRequested(episode_id=transcript.episode_id), transcript.episode_id)
    assert world.produce() == []
    assert world.transcript(transcript.episode_id).finished == transcript.finished


def test_context_of_a_turn_is_the_observation_in_the_template(world: World) -> None:
    from producers.policies.scripted import open_scripted

    encode = open_scripted("scripted:empty", world.artifacts).encode
    task = tool_task("calc")
    transcript = world.play(task, ["calc 2+3", "done"])
    assert unpack_ids(transcript.turns[0].generated.context) == encode("user", task.prompt)
    assert unpack_ids(transcript.turns[1].generated.context) == encode("tool", "5")
