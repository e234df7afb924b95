"""Scripted policies: turns that were written, not sampled.

    scripted:reference      the task's reference solution
    scripted:empty          hands in at once, with nothing done
    scripted:variant:NAME   another script of the task (`wrong`, `partial`, ...)
    scripted:experts        the sloppy experts of the tool tasks, seeded by the episode id
    scripted:FILE           JSON lines {"task_id": ..., "turns": [...]}

A turn is encoded once, with the tiny policy's tokenizer. There are no logprobs and no versions: it was not sampled.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import msgspec

from artifacts.store import ArtifactStore
from producers.policies import TINY_BASE
from producers.policies.tokenizer import Tokenizer
from schemas.errors import ConfigError, PolicyError
from schemas.policy import Generation, TurnRequest
from tasks.experts import expert_turns
from tasks.task import Task, load_task

Script = Callable[[Task, TurnRequest], str]
KEPT_TASKS = 512
_EMPTY = {"line": "done", "json": '{"tool": "done", "arguments": {}}'}


class ScriptedPolicy:
    def __init__(self, name: str, script: Script, artifacts: ArtifactStore) -> None:
        self.name = name
        self._script, self._artifacts = script, artifacts
        self._tokenizer = Tokenizer(TINY_BASE / "tokenizer.json")
        self._template = self._tokenizer.template
        self.tokenizer_digest: str | None = self._tokenizer.digest
        self._tasks: OrderedDict[str, Task] = OrderedDict()

    def encode(self, role: str, text: str) -> list[int]:
        return self._template.observation(role, self._tokenizer.encode(text))

    async def generate(self, request: TurnRequest) -> Generation:
        text = self._script(self._task(request.task_digest), request)
        return Generation(ids=[*self._tokenizer.encode(text), self._template.stop], text=text, sampler="scripted")

    async def close(self) -> None:
        pass

    def _task(self, digest: str) -> Task:
        if digest not in self._tasks:
            self._tasks[digest] = load_task(digest, self._artifacts)
            if len(self._tasks) > KEPT_TASKS:
                self._tasks.popitem(last=False)
        return self._tasks[digest]


def open_scripted(name: str, artifacts: ArtifactStore) -> ScriptedPolicy:
    """Raises ConfigError for a name or file that cannot be used."""
    return ScriptedPolicy(name, script_of(name), artifacts)


def script_of(name: str) -> Script:
    what = name.removeprefix("scripted:")
    if what in _SCRIPTS:
        return _SCRIPTS[what]
    if what.startswith("variant:"):
        variant = what.removeprefix("variant:")
        return lambda task, request: _turn(name, request, task.variants.get(variant))
    turns = read_scripts(Path(what))
    return lambda task, request: _turn(name, request, turns.get(task.task_id))


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    task_id: str
    turns: list[str]


def read_scripts(path: Path) -> dict[str, list[str]]:
    """Turns by task id. Raises ConfigError with the line number of the first line that is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as wrong:  # A name with a null byte is a ValueError.
        reason = wrong.strerror if isinstance(wrong, OSError) else getattr(wrong, "reason", str(wrong))
        raise ConfigError(f"script file cannot be read ({reason})", where=str(path),
                          hint="scripted:reference, scripted:empty, scripted:experts, scripted:variant:NAME or a "
                               "file of JSON lines with task_id and turns") from None
    scripts: dict[str, list[str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line, type=_Row)
        except msgspec.MsgspecError as wrong:
            raise ConfigError(f"script line cannot be read ({wrong})", where=f"{path}, line {number}", value=line,
                              hint='each line is {"task_id": "...", "turns": ["...", ...]}') from None
        if row.task_id in scripts:
            raise ConfigError("task has a script already", where=f"{path}, line {number}", value=row.task_id)
        scripts[row.task_id] = row.turns
    return scripts


def _turn(name: str, request: TurnRequest, turns: list[str] | None) -> str:
    where = f"policy {name}, task {request.task_id}"
    if turns is None:
        raise PolicyError("no script for this task", where=where)
    if request.turn >= len(turns):
        raise PolicyError("the script is over and the episode is not", where=where, value=f"{len(turns)} turns",
                          hint="a script ends with the call that hands in")
    return turns[request.turn]


def _expert(task: Task, request: TurnRequest) -> str:
    """Played again from the start: an expert has no memory but its seed and what it was shown."""
    turns = expert_turns(task, request.episode_id)
    line = next(turns)
    for observation in [seen for seen in request.history if seen.role == "tool"][:request.turn]:
        line = turns.send(observation.text)
    return line


_SCRIPTS: dict[str, Script] = {
    "reference": lambda task, request: _turn("scripted:reference", request, task.reference),
    "empty": lambda task, request: _EMPTY[task.dialect],
    "experts": _expert,
}
