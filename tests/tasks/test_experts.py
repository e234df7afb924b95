"""The sloppy experts repeat for a seed, know only tool tasks, and end with done."""

from __future__ import annotations

import pytest

from schemas.errors import TaskError
from tasks.experts import expert_turns
from tasks.task import SubmittedCall, Task
from tasks.terminal import predicate
from tasks.tools import training_tasks


def play(task: Task, seed: object, observation: str = "7") -> list[str]:
    turns = expert_turns(task, seed)
    lines = [next(turns)]
    try:
        while True:
            lines.append(turns.send(observation))
    except StopIteration:
        return lines


def test_experts_repeat_and_always_finish() -> None:
    tasks = training_tasks(0, 0, 64)
    played = [play(task, index) for index, task in enumerate(tasks)]
    assert played == [play(task, index) for index, task in enumerate(tasks)]
    assert all(lines[-1] == "done" and len(lines) <= 5 for lines in played)


def test_experts_are_sometimes_right_and_write_what_they_saw() -> None:
    task = next(task for task in training_tasks(0, 0, 4) if task.hidden["family"] == "calc")
    played = [play(task, seed) for seed in range(50)]
    assert [f"write {task.hidden['out']} 7"] in [lines[1:-1] for lines in played]
    assert any("unknown" in line for lines in played for line in lines)


def test_other_tasks_have_no_expert() -> None:
    with pytest.raises(TaskError, match="no scripted expert"):
        expert_turns(Task(task_id="x", kind="coding", set="s", prompt="p"), 0)


def test_done_ends_an_episode_only_when_accepted() -> None:
    over = predicate("done")
    call = SubmittedCall(turn=0, tool="done", arguments="", status="ok", output="")
    assert over([call])
    assert not over([])
    assert not over([SubmittedCall(turn=0, tool="done", arguments="now", status="malformed", output="")])
    with pytest.raises(TaskError, match="unknown terminal predicate"):
        predicate("never")
