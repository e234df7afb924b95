"""The same submission and verifier give the same bytes: in any process, order and company, whatever texts hash to."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tasks.scripts import done
from tasks.sets import builtin_sets
from tasks.task import Task
from tests.conftest import REPOSITORY
from tests.verifiers.rig import Rig
from verifiers import digest, registry

CHECK = Task(task_id="check", kind="coding", set="s", prompt="p", hidden={
    "entry": "f", "check": "import random\n\ndef check(f):\n    for _ in range(5):\n"
                           "        n = random.randrange(99)\n        assert f({n, n + 1, 'a', 'b'}) == n\n"})
CALLS = Task(task_id="calls", kind="tools", verifier="calls", set="s", prompt="p", hidden={
    "functions": [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}],
    "turns": [[{"name": "f", "arguments": {"a": 1}}]]})
BOTH = Task(task_id="both", kind="tools", verifier="composite", set="s", prompt="p", files={"out.txt": b"42"}, hidden={
    "parts": [{"verifier": "tools", "hidden": {"family": "calc", "out": "out.txt", "want": "42"}, "weight": 0.5},
              {"verifier": "calls", "hidden": CALLS.hidden, "weight": 0.5}]})
SCRIPT = """
import json, sys
from artifacts import open_store
from sandboxes import open_backend
from schemas.settings import Settings
from verifiers.scoring import Request, here

settings = Settings(home=sys.argv[1])
artifacts = open_store(settings)
backend = open_backend(settings, artifacts)
score = here(artifacts, backend)
for submission in sys.argv[2:]:
    given = score(Request(submission=submission, episode_id="episode", run_id="run"))
    print(json.dumps([submission, given.score_id, given.status, given.reward, sorted(given.components.items()),
                      given.evidence.digest]))
backend.close()
"""


def handed_in(rig: Rig) -> list[str]:
    """A right and a wrong submission for every verifier that needs no model."""
    found = []
    for name, tasks in builtin_sets().items():
        task = tasks()[0]
        if task.dialect == "json":
            found += [rig.play(task, task.reference), rig.play(task, task.variants.get("wrong", [done()]))]
        elif name == "tools":
            wanted = task.hidden["want"]
            found += [rig.hand_in(task, {task.hidden["out"]: text}, calls=[("done", "ok")]) for text in (wanted, "?")]
    for body in ("min(x for x in s if x != 'a' and x != 'b')", "s"):
        found.append(rig.hand_in(CHECK, {"solution.py": f"def f(s):\n    return {body}\n"}))
    for answer in ('[{"name": "f", "arguments": {"a": 1}}]', "f(a=2)"):
        found += [rig.hand_in(task, {}, answer=answer, calls=[("done", "ok")]) for task in (CALLS, BOTH)]
    return found


def scored(rig: Rig, submissions: list[str], hash_seed: str) -> dict[str, list[object]]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, rig.settings.home, *submissions], cwd=REPOSITORY, check=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True)
    return {row[0]: row[1:] for row in map(json.loads, done.stdout.splitlines())}


def test_the_same_bytes_in_any_process_order_and_company(rig: Rig) -> None:
    submissions = handed_in(rig)
    here = {name: [score.score_id, score.status, score.reward, sorted(map(list, score.components.items())),
                   score.evidence.digest if score.evidence else None]
            for name in submissions for score in [rig.score(name)]}
    rewards = [row[2] for row in here.values()]
    assert rewards.count(1.0) >= len(rewards) // 2 - 1 and sum(reward == 1.0 for reward in rewards) < len(rewards)
    shuffled = random.Random(1).sample(submissions, len(submissions))
    with ThreadPoolExecutor(3) as pool:
        others = pool.map(lambda case: scored(rig, *case), [
            (submissions, "1"), (submissions[::-1], "2"), (shuffled, "random")])
    for other in others:
        assert other == here


@pytest.mark.parametrize("name", sorted(registry.BUILTIN))
def test_a_change_of_any_module_that_decides_changes_the_digest(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verifier = registry.get_verifier(name)
    module = sys.modules[type(verifier).__module__]

    def now() -> str:
        """Its digest as another process would work it out."""
        for other in [digest, *(sys.modules.get(place.partition(":")[0]) for place in registry.BUILTIN.values())]:
            for value in list(vars(other).values()) if other else []:
                if hasattr(value, "cache_clear") and value is not digest.source_of:
                    value.cache_clear()
        return verifier.digest

    source_of, before = digest.source_of, now()
    for changed in sorted({*module.MODULES}):
        def altered(asked: str, changed: str = changed) -> bytes:
            return source_of(asked) + (b"# changed\n" if asked == changed else b"")

        monkeypatch.setattr(digest, "source_of", altered)
        assert now() != before, changed
    monkeypatch.undo()
    assert now() == before
