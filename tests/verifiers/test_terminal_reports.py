"""Harbor tasks as they are found in public: images that set things up, tests in other languages, and what reports say
went wrong with rewards elsewhere. Each task is solved by its solution and scores 0 without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.enums import ScoreStatus
from tests.verifiers.rig import Rig
from tests.verifiers.test_terminal import OUTPUTS, after, one, what
from verifiers.terminal.libraries import imported, installed_by, mounts
from verifiers.terminal.script import LACKING

DOCKER = """FROM ubuntu:24.04
WORKDIR /app
COPY words.txt /srv/words.txt
RUN apt-get update && apt-get install -y python3 && useradd -m agent && rm -rf /var/lib/apt/lists/*
RUN git init -q . && mkdir -p /var/lib/task && seq 40 42 > /var/lib/task/numbers.txt && echo 41 > answer.txt
RUN python3 -c "open('made.txt', 'w').write(open('/srv/words.txt').read() * 2)"
RUN definitely-not-here || exit 9
"""
INSPECT = """#!/bin/bash
if [ "$PWD" = "/" ]; then echo "no working directory"; exit 1; fi
[ -d .git ] && [ "$(cat made.txt)" = "$(printf 'w\\nw')" ] &&
  [ "$(cat answer.txt)" = "$(tail -1 /var/lib/task/numbers.txt)" ]
if [ $? -eq 0 ]; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
"""


def test_what_the_image_makes_is_there_for_policy_and_tests(rig: Rig, tmp_path: Path) -> None:
    task = one(tmp_path, environment__Dockerfile=DOCKER, environment__words_DOT_txt="w\n", test=INSPECT,
               solve="#!/bin/bash\ntail -1 /var/lib/task/numbers.txt > answer.txt\n")
    assert rig.score(rig.play(task, task.reference)).reward == 1.0
    assert rig.score(rig.hand_in(task)).reward == 0.0 == rig.score(rig.play(task, [])).reward
    both = after(rig, task, "echo 43 | tee answer.txt /var/lib/task/numbers.txt")
    assert both.reward == 0.0, "what lies beside the workspace is read-only"
    noted = rig.evidence(rig.score(rig.hand_in(task)))["details"]["notes"]
    assert noted[0].startswith("not done: RUN apt-get update") and len(noted) == 2


PYTHON = """#!/usr/bin/env python3
import json, pathlib
found = pathlib.Path("answer.txt")
reward = float(found.is_file() and found.read_text().strip() == "42")
files = len(list(found.parent.iterdir()))
pathlib.Path("/logs/verifier/reward.json").write_text(json.dumps({"reward": reward, "files": files}))
"""
USUAL = """#!/bin/bash
# Install curl
apt-get update
apt-get install -y curl
# Install uv
curl -LsSf https://astral.sh/uv/0.9.5/install.sh | sh
source $HOME/.local/bin/env
uvx \\
  -p 3.13 \\
  -w pytest==8.4.1 \\
  -w pytest-json-ctrf==0.3.5 \\
  pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py -rA
if [ $? -eq 0 ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""
WITH_HELPERS = """import json, os, sys
sys.path.insert(0, os.path.dirname(__file__))
from helpers import wanted
import pytest
@pytest.fixture
def answer():
    with open("answer.txt") as file:
        return file.read().strip()
class TestAnswer:
    @pytest.mark.parametrize("want", [wanted()])
    def test_it(self, answer, want):
        assert answer == want
"""


@pytest.mark.parametrize("parts", [
    {"test": PYTHON}, {"test": USUAL, "tests__test_outputs_DOT_py": WITH_HELPERS,
     "tests__helpers_DOT_py": "def wanted(): return '42'\n"},
    {"test": "#!/bin/sh\nset -eu\ngrep -qx 42 answer.txt && r=1 || r=0\nprintf %s $r >/logs/verifier/reward.txt\n"},
    {"test": "#!/bin/bash\npython3 /tests/check.py > /logs/verifier/reward.json\n",
     "tests__check_DOT_py": "import os\nprint('{\"correct\": %d}' % (os.path.exists('answer.txt') and "
                            "open('answer.txt').read() == '42\\n'))\n"},
    {"test": "#!/bin/bash\nbash -x /tests/lib/run.sh 2>&1 | tee /logs/verifier/test-stdout.txt\n",
     "tests__lib__run_DOT_sh": "[ \"$(cat /app/answer.txt 2>/dev/null)\" = 42 ] && r=1.0 || r=0.0\n"
                               "echo $r > /logs/verifier/reward.txt\n"}],
    ids=["python", "pytest", "sh", "named number", "nested"])
def test_tests_of_many_kinds(rig: Rig, tmp_path: Path, parts: dict[str, str]) -> None:
    task = one(tmp_path, **parts)
    solved = rig.score(rig.play(task, task.reference))
    assert (solved.status, solved.reward) == (ScoreStatus.OK, 1.0), rig.evidence(solved)
    failed = rig.score(rig.hand_in(task))
    assert (failed.status, failed.reward) == (ScoreStatus.OK, 0.0), rig.evidence(failed)


PLANTS = [
    "mkdir -p /tests /logs 2>/dev/null; echo 'raise SystemExit(0)' > /tests/conftest.py; ln -sfn /app /logs/verifier;"
    "mkdir -p tests logs verifier headrace_ctrf; echo 1 | tee verifier/r.txt r.txt;"
    "echo 'def test_answer(): pass' | tee tests/test_outputs.py test_outputs.py;"
    "echo 'raise SystemExit(0)' | tee headrace_ctrf/__init__.py headrace_ctrf.py evil.py conftest.py tests/conftest.py;"
    "printf '[tool.pytest.ini_options]\\naddopts = \"-p evil\"\\n' > pyproject.toml;"
    "printf '[pytest]\\npython_files = none.py\\n' | tee pytest.ini tox.ini setup.cfg;"
    "export PYTEST_ADDOPTS=--collect-only PYTEST_PLUGINS=evil PYTHONPATH=/app PYTHONSTARTUP=/app/evil.py",
    "ln -s /tests/test_outputs.py answer.txt", "ln -s /dev/stdin answer.txt"]


@pytest.mark.parametrize("plant", PLANTS)
def test_reported_plants_write_no_reward(rig: Rig, tmp_path: Path, plant: str) -> None:
    """huggingface/OpenEnv#972, hud-evals/hud-python#526, aisa-group/PostTrainBench#33: planted tests and rewards."""
    test = "pytest /tests/test_outputs.py && R=1 || R=0\necho $R > /logs/verifier/reward.txt\n"
    task = one(tmp_path, test=test, tests__test_outputs_DOT_py=OUTPUTS)
    score = after(rig, task, plant)
    assert (score.status, score.reward) == (ScoreStatus.OK, 0.0), rig.evidence(score)


@pytest.mark.parametrize(("report", "test", "reward"), [
    ("morluto/jacobian#831", "echo '{\"reward\": 0.5, \"ms\": 1234, \"cost\": -3}' > $V/reward.json", 0.5),
    ("PrimeIntellect-ai/verifiers#1401", "echo 0 > $V/reward.txt; echo '{\"reward\": 1}' > $V/reward.json", 1.0),
    ("PrimeIntellect-ai/verifiers#1674", "echo 1 > $V/reward.txt; echo 0.0 > $V/reward.json", 0.0),
    ("PrimeIntellect-ai/verifiers#2152", "yes 1 | head -c 70000 > $V/reward.txt", "over the limit"),
    ("macanderson/stella#3264", "sleep 9; echo 1 > $V/reward.txt", "did not end within"),
    ("Human-Agent-Society/reef#215", "true", "wrote no reward"),
    ("mangit955/nap#111", "echo nothing measured; exit 1", "wrote no reward"),
    ("a name that the format does not read", "echo '{\"reward\": 1}' > $V/rewards.json", "wrote no reward"),
    ("carriage returns", "printf '1\\r\\n' > $V/reward.txt", 1.0),
    ("a mark of byte order", "printf '\\357\\273\\2771\\n' > $V/reward.txt", "one finite number")])
def test_reported_rewards(rig: Rig, tmp_path: Path, report: str, test: str, reward: Any) -> None:
    toml = 'schema_version = "1.4"\n[verifier]\ntimeout_sec = 4.0\n'
    task = one(tmp_path, toml=toml, test=f"#!/bin/bash\nV=/logs/verifier\n{test}\n")
    score = rig.score(rig.hand_in(task))
    if isinstance(reward, float):
        assert (score.status, score.reward) == (ScoreStatus.OK, reward)
    else:
        assert (score.status, score.reward) == (ScoreStatus.VERIFIER_ERROR, None) and reward in what(rig, score)


def test_a_solution_that_installs_what_is_here_goes_on(rig: Rig, tmp_path: Path) -> None:
    for installer in ("apt-get update && apt-get install -y coreutils", "pip install -q wheel", "sudo apt-get update"):
        solve = f"#!/bin/bash\nset -euo pipefail\n{installer}\necho 42 > /app/answer.txt\n"
        task = one(tmp_path / installer[:4], solve=solve)
        assert rig.score(rig.play(task, task.reference)).reward == 1.0, installer


LIBRARY = """import numpy as np
def test_mean():
    assert np.mean([int(line) for line in open("answer.txt")]) == 42
"""


def test_tests_have_the_libraries_that_are_here_and_are_not_run_without_others(rig: Rig, tmp_path: Path) -> None:
    task = one(tmp_path, test=USUAL.replace("-w pytest-json", "-w numpy==2.0 -w pytest-json"),
               tests__test_outputs_DOT_py=LIBRARY)
    assert rig.score(rig.play(task, task.reference)).reward == 1.0
    planted = after(rig, task, "mkdir numpy; echo 'mean = lambda _: 42' > numpy/__init__.py; echo 1 > answer.txt")
    assert planted.reward == 0.0
    lacking = one(tmp_path / "lacking", test=USUAL, tests__test_outputs_DOT_py="import tensorflow.keras\n" + LIBRARY)
    score = rig.score(rig.hand_in(lacking))
    assert (score.status, what(rig, score)) == (ScoreStatus.VERIFIER_ERROR, LACKING)
    assert rig.evidence(score)["details"]["missing"] == ["library tensorflow"]


def test_imports_of_tests_are_told() -> None:
    files = {"a.py": b"import os, pandas.io\nfrom scipy.stats import norm\nfrom . import yaml\nimport solution\n",
             "b.py": b"try:\n    import torch\nexcept ImportError:\n    torch = None\ndef f():\n    import requests\n",
             "c.py": b"import (", "d.txt": b"import flask"}
    assert imported(files) == {"pandas", "scipy", "requests"}
    assert installed_by({"t.sh": b"pip install -q pyyaml==6 numpy\nuvx --with 'pillow>=9' x\necho my-scipy"}) == {
        "yaml", "numpy", "PIL"}
    assert set(mounts(["numpy"], "/lib")) >= {"/lib/numpy"} and not mounts(["torch"], "/lib")


@pytest.mark.parametrize("workdir", ["/workspace", "/workspace/project", "/solution", "/root/work"])
def test_a_working_directory_may_be_anywhere(rig: Rig, tmp_path: Path, workdir: str) -> None:
    task = one(tmp_path, environment__Dockerfile=f"FROM x\nRUN mkdir -p {workdir}\nWORKDIR {workdir}\nCOPY in.txt .\n",
               environment__in_DOT_txt="42\n", solve=f"#!/bin/bash\ncp in.txt {workdir}/answer.txt\n",
               instruction=f"Copy {workdir}/in.txt to answer.txt.", test="#!/bin/bash\n[ $PWD = " + workdir
               + " ] && cmp -s in.txt answer.txt && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n")
    assert [rig.score(rig.play(task, turns)).reward for turns in (task.reference, [])] == [1.0, 0.0]


def test_the_evidence_explains_a_right_and_a_wrong_submission(rig: Rig, tmp_path: Path) -> None:
    task = one(tmp_path, test=USUAL, tests__test_outputs_DOT_py=OUTPUTS)
    right = rig.evidence(rig.score(rig.play(task, task.reference)))["details"]
    wrong = rig.evidence(after(rig, task, "echo 43 > answer.txt"))["details"]
    assert "1 passed" in right["output"] and "1 failed" in wrong["output"] and "43" in wrong["output"]
    for details in (right, wrong):
        assert details["image"] and details["notes"] == ["there is no network"] and details["exit_code"] == 0
    assert json.dumps(right) != json.dumps(wrong)
