"""A workspace that cannot be kept is the policy's doing: it is told, the call is undone, and it is judged as ever."""

from __future__ import annotations

from tests.producers.world import World, json_task, json_turn

DEEP = "python3 -c \"import os\nfor _ in range(300): os.mkdir('d'); os.chdir('d')\""


def test_a_workspace_too_deep_for_a_snapshot_is_undone_and_judged(world: World) -> None:
    task = json_task(files={"kept": b"k"})
    transcript = world.play(task, [
        json_turn("write_file", path="answer", content="1"), json_turn("run", command=DEEP),
        json_turn("run", command="ls"), json_turn("done", answer="x")])
    returned = [call.returned for turn in transcript.turns for call in turn.calls if call.returned]
    assert [one.status for one in returned] == ["ok", "output_limit", "ok", "ok"]
    assert "too deep" in returned[1].output and returned[1].workspace is None
    assert returned[2].output.split() == ["answer", "kept"]
    finished = transcript.finished
    assert finished is not None
    assert (finished.termination, finished.failure_kind) == ("completed", None)
    assert finished.workspace == returned[0].workspace
    assert world.submission(transcript.episode_id).workspace == returned[0].workspace
