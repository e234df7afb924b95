"""Policies by name: scripts say what is wrong with them, and where."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from artifacts.store import DirectoryStore
from producers.policies import check_policy, open_policy
from producers.policies.scripted import open_scripted
from schemas.errors import ConfigError, PolicyError
from schemas.events import Sampling
from schemas.policy import Observation, TurnRequest
from schemas.settings import Settings
from tasks.task import Task, store_task
from tasks.tools import training_tasks


def ask(name: str, artifacts: DirectoryStore, task: Task, turn: int = 0, seen: tuple[str, ...] = ()) -> str:
    history = [Observation("user", task.prompt), *(Observation("tool", text) for text in seen)]
    request = TurnRequest(episode_id="e", task_id=task.task_id, turn=turn, context=[], history=history,
                          sampling=Sampling(), task_digest=store_task(task, artifacts).digest)
    return asyncio.run(open_scripted(name, artifacts).generate(request)).text


def test_scripts_of_a_task(artifacts: DirectoryStore) -> None:
    task = Task(task_id="t", kind="coding", set="s", prompt="p", reference=["one", "two"],
                variants={"wrong": ["three"]})
    assert [ask("scripted:reference", artifacts, task, turn) for turn in (0, 1)] == ["one", "two"]
    assert ask("scripted:variant:wrong", artifacts, task) == "three"
    assert ask("scripted:empty", artifacts, task) == '{"tool": "done", "arguments": {}}'
    assert ask("scripted:empty", artifacts, training_tasks(0, 0, 1)[0]) == "done"
    with pytest.raises(PolicyError, match="the script is over"):
        ask("scripted:reference", artifacts, task, 2)
    with pytest.raises(PolicyError, match="no script for this task"):
        ask("scripted:variant:none", artifacts, task)


def test_experts_go_on_from_what_they_saw(artifacts: DirectoryStore) -> None:
    chain = next(task for task in training_tasks(0, 0, 4) if task.hidden["family"] == "chain")
    second = ask("scripted:experts", artifacts, chain, 1, ("the record",))
    assert ask("scripted:experts", artifacts, chain).startswith("cat ")
    if second.startswith("calc "):
        assert ask("scripted:experts", artifacts, chain, 2, ("the record", "77")).endswith(" 77")


def test_a_turn_is_encoded_with_its_end_and_was_not_sampled(artifacts: DirectoryStore) -> None:
    task = Task(task_id="t", kind="coding", set="s", prompt="p", reference=["<|end|> é"])
    policy = open_scripted("scripted:reference", artifacts)
    request = TurnRequest(episode_id="e", task_id="t", turn=0, context=[], history=[], sampling=Sampling(),
                          task_digest=store_task(task, artifacts).digest)
    generation = asyncio.run(policy.generate(request))
    assert generation.ids.count(1) == 1
    assert generation.ids[-1] == 1
    assert (generation.logprobs, generation.versions) == (None, [])


@pytest.mark.parametrize(("content", "line", "told"), [
    ('{"task_id": "a", "turns": ["done"]}\n\n{"task_id": "b"}', 3, "turns"),
    ('{"task_id": "a", "turns": "done"}', 1, "Expected `array`"),
    ('{"task_id": "a", "turns": []}\nnot json', 2, "malformed"),
    ('{"task_id": "a", "turns": []}\n{"task_id": "a", "turns": []}', 2, "has a script already"),
    ('{"task_id": "a", "turns": [], "more": 1}', 1, "unknown field"),
])
def test_a_broken_script_file_names_the_line(tmp_path: Path, content: str, line: int, told: str) -> None:
    path = tmp_path / "script.jsonl"
    path.write_text(content)
    with pytest.raises(ConfigError, match=told) as wrong:
        check_policy(f"scripted:{path}")
    assert wrong.value.where == f"{path}, line {line}"


@pytest.mark.parametrize(("name", "told"), [
    ("magic", "unknown policy"), ("scripted", "unknown policy"), ("scripted:/no/such/file", "cannot be read"),
    ("scripted:\0", "embedded null byte"),
    ("transformers:/no/such/folder", "config.json is missing"), ("transformers:", "unknown policy"),
])
def test_an_unknown_policy_is_a_users_mistake(name: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        open_policy(name, Settings())
