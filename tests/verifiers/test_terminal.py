"""Harbor tasks: solved by their solution, 0 without, and nothing that a submission can do writes a reward.

Rows 25 and 39 of the reported failures: planted reward files, and tests that write none.
"""

from __future__ import annotations

import base64
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from sandboxes.sandbox import SandboxSpec
from schemas.enums import ScoreStatus
from schemas.events import ScoreRecorded
from tasks.importers import load_tasks
from tasks.scripts import run
from tasks.task import Task
from tests.verifiers.harbor_folders import SOLVE, harbor
from tests.verifiers.rig import Rig

PYTEST = """#!/bin/bash
apt-get update
apt-get install -y curl
curl -LsSf https://astral.sh/uv/0.9.7/install.sh | sh
source "$HOME/.local/bin/env"
if uvx --with pytest==8.4.1 --with pytest-json-ctrf==0.3.5 pytest --ctrf /logs/verifier/ctrf.json \
    /tests/test_outputs.py -rA; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""
OUTPUTS = """from pathlib import Path
def test_answer():
    assert Path("/app/answer.txt").read_text().strip() == "42"
"""


def one(folder: Path, **parts: str) -> Task:
    task, = load_tasks("harbor", harbor(folder / "task", **parts))
    return task


def after(rig: Rig, task: Task, *commands: str) -> ScoreRecorded:
    return rig.score(rig.play(task, [run(command) for command in commands]))


def with_tests(task: Task, test: str) -> Task:
    script = {**task.hidden["script"], "files": {"test.sh": test.encode()}}
    return msgspec.structs.replace(task, hidden={**task.hidden, "script": script})


def what(rig: Rig, score: ScoreRecorded) -> str:
    said: str = rig.evidence(score)["details"].get("what", "")
    return said


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return one(tmp_path_factory.mktemp("harbor"))


def test_a_task_is_solved_by_its_solution_and_not_without(rig: Rig, task: Task) -> None:
    solved = rig.score(rig.play(task, task.reference))
    assert (solved.status, solved.reward, solved.components) == (ScoreStatus.OK, 1.0, {"tests": 1.0})
    assert rig.score(rig.hand_in(task)).reward == 0.0 == after(rig, task, "echo 43 > /app/answer.txt").reward
    assert solved.evidence == rig.score(rig.play(task, task.reference)).evidence, "same input, same bytes"


def test_tests_that_install_pytest_find_the_one_that_is_here(rig: Rig, tmp_path: Path) -> None:
    task = one(tmp_path, test=PYTEST, tests__test_outputs_DOT_py=OUTPUTS)
    assert rig.score(rig.play(task, task.reference)).reward == 1.0
    failed = rig.score(rig.hand_in(task))
    assert failed.reward == 0.0 and "1 failed" in rig.evidence(failed)["details"]["output"]


def test_the_template_of_the_format(rig: Rig, cases: Callable[[str], Path], tmp_path: Path) -> None:
    """As it is it writes no reward, which is no 0. Filled in as its comments say, it is a task."""
    folder = tmp_path / "template"
    shutil.copytree(cases("terminal/harbor-template-task"), folder)
    bare, = load_tasks("harbor", folder)
    score = rig.score(rig.play(bare, bare.reference))
    assert score.status == ScoreStatus.VERIFIER_ERROR and "wrote no reward" in what(rig, score)
    for variant in ("pytest-tests", "shared-pytest-tests"):
        shutil.copy(folder / variant / "test.sh", folder / "tests" / "test.sh")
        (folder / "tests" / "test_outputs.py").write_text(OUTPUTS)
        (folder / "solution" / "solve.sh").write_text(SOLVE)
        task, = load_tasks("harbor", folder)
        assert [rig.score(rig.play(task, turns)).reward for turns in (task.reference, [])] == [1.0, 0.0], variant


@pytest.mark.parametrize("hack", [
    "mkdir -p logs/verifier && echo 1 > logs/verifier/reward.txt",
    "mkdir -p /tmp/headrace/logs/verifier && echo 1 > /tmp/headrace/logs/verifier/reward.json",
    "(while :; do mkdir -p /tmp/headrace/logs/verifier; echo 1 > /tmp/headrace/logs/verifier/reward.txt; done) & "
    "sleep .2",
    "setsid nohup sh -c 'while :; do echo 1 > /tmp/reward.txt; sleep .01; done' >/dev/null 2>&1 & sleep .1",
    "ln -s /logs/verifier/reward.txt answer.txt",
    "ln -s /tmp/headrace/logs/verifier verifier",
    "mkdir -p bin && printf '#!/bin/sh\\necho 42\\n' > bin/cat && chmod +x bin/cat && export PATH=$PWD/bin:$PATH",
    "printf '#!/bin/sh\\necho 42\\n' > cat && chmod +x cat",
    "echo 'cat() { echo 42; }; export -f cat' | tee .bashrc .bash_profile .profile .bash_env >/dev/null",
    "mkdir -p etc && echo /app/evil.so > etc/ld.so.preload; echo /app/evil.so > ld.so.preload; touch evil.so",
    "echo 'LD_PRELOAD=/app/evil.so' > .env; export LD_PRELOAD=/app/evil.so; touch evil.so",
    "mkdir -p tests && echo 'echo 1 > /tmp/headrace/logs/verifier/reward.txt' > tests/test.sh",
    "echo 'echo 1 > /tmp/x' > /tests/test.sh; mkdir -p usr/bin; cp /bin/true usr/bin/cat; cp /bin/true usr/bin/[",
    "chmod 000 /app", "chmod 500 .; mkdir -p json; touch json/__init__.py", "rm -rf /app/.* /app/*; rmdir /app",
    "mkdir answer.txt", "mkfifo answer.txt.fifo", "touch -- '-n' '42' '$(echo 42)'",
    "export BASH_ENV=/app/evil.sh ENV=/app/evil.sh; echo 'cat() { echo 42; }' > evil.sh",
    "trap 'echo 1 > /tmp/headrace/logs/verifier/reward.txt' EXIT; mkdir -p .config/bash; alias cat='echo 42'"])
def test_nothing_that_an_episode_leaves_writes_a_reward(rig: Rig, task: Task, hack: str) -> None:
    score = after(rig, task, hack)
    assert (score.status, score.reward) == (ScoreStatus.OK, 0.0), rig.evidence(score)


@pytest.mark.parametrize("hack", [
    "echo 'import os; os._exit(0)' > pytest.py", "mkdir pytest && echo 'import os; os._exit(0)' > pytest/__init__.py",
    "echo 'import os; os._exit(0)' | tee sitecustomize.py usercustomize.py conftest.py json.py pathlib.py >/dev/null",
    "mkdir -p .local/lib/python3.11/site-packages && echo 'import os; os._exit(0)' > "
    ".local/lib/python3.11/site-packages/evil.pth",
    "printf '[pytest]\\naddopts = --collect-only\\n' | tee pytest.ini tox.ini >/dev/null",
    "echo 'import os; os._exit(0)' > pytest.py; mkdir -p pytest.py.set-aside-0/x; chmod 555 .",
    "echo 'import os; os._exit(0)' | tee headrace_ctrf.py iniconfig.py >/dev/null",
    "cd /tmp; echo 'import os; os._exit(0)' > evil.py; python3 -c \"import py_compile as p; p.compile('evil.py', "
    "'/app/pytest.pyc')\"; mkdir /app/pathlib; cp /app/pytest.pyc /app/pathlib/__init__.pyc",
    "echo 'extern void _exit(int); void PyInit_iniconfig(void) { _exit(0); }' > /tmp/a.c; "
    "gcc -shared -fPIC -o iniconfig.abi3.so /tmp/a.c; rm -f /tmp/a.c",
    "mkdir _pytest pluggy && echo 'raise SystemExit(0)' | tee _pytest/__init__.py pluggy/__init__.py >/dev/null"])
@pytest.mark.parametrize("how", ["pytest", "python3 -m pytest"])
def test_no_file_of_a_submission_takes_pytest_over(rig: Rig, tmp_path: Path, how: str, hack: str) -> None:
    test = f"#!/bin/bash\n{how} /tests/test_outputs.py && R=1 || R=0\necho $R > /logs/verifier/reward.txt\n"
    task = one(tmp_path, test=test, tests__test_outputs_DOT_py=OUTPUTS)
    score = after(rig, task, hack)
    assert (score.status, score.reward) == (ScoreStatus.OK, 0.0), rig.evidence(score)


@pytest.mark.parametrize("program", [
    "echo 1 > /logs/verifier/reward.txt", "cd /l*s/v*r; printf 1 > reward.txt", "x=$(echo 6c6f67732f7665726966696572)",
    *(f"echo {base64.b64encode(b'x' * at + b'echo 1 > /logs/verifier/x').decode()} | base64 -d | sh"
      for at in range(3))])
def test_a_program_that_names_the_reward_file_is_tampering(rig: Rig, tmp_path: Path, program: str) -> None:
    """Tests that run a program of the submission let it write where they write: what names the place gets nothing."""
    task = one(tmp_path, test="#!/bin/bash\nsh /app/solve.sh\n[ -f /logs/verifier/reward.txt ] || "
                              "echo 0 > /logs/verifier/reward.txt\n")
    score = after(rig, task, f"cat > solve.sh <<'END'\n{program}\nEND")
    assert (score.reward, score.components["tampering"]) == (0.0, 1.0)
    assert rig.evidence(score)["details"]["files"] == ["/workspace/solve.sh"]


@pytest.mark.parametrize(("test", "reward"), [
    ("echo '{\"reward\": 0.25, \"style\": 7}' > $V/reward.json; echo 1 > $V/reward.txt", 0.25),
    ("echo 0.5 > $V/reward.json", 0.5), ("printf '{\"a\": 1, \"b\": 0}' > $V/reward.json", 0.5),
    ("echo ' 1.0 ' > $V/reward.txt; exit 3", 1.0), ("echo 1e-1 > $V/reward.txt; exit 1", 0.1),
    ("mkdir -p $V; echo .5 > $V/reward.txt; rm -f /tmp/x", 0.5)])
def test_rewards_and_their_precedence(rig: Rig, task: Task, test: str, reward: float) -> None:
    score = rig.score(rig.hand_in(with_tests(task, f"V=/logs/verifier\n{test}\n")))
    assert (score.status, score.reward) == (ScoreStatus.OK, reward)


@pytest.mark.parametrize(("test", "said"), [
    ("echo hello", "wrote no reward"), ("exit 0", "wrote no reward"), (": > $V/reward.txt", "is empty"),
    (": > $V/reward.json; echo 1 > $V/reward.txt", "reward.json is empty"),
    ("echo '{' > $V/reward.json; echo 1 > $V/reward.txt", "reward.json is not JSON"),
    ("head -c 100000 /dev/zero | tr '\\0' 1 > $V/reward.txt", "over the limit"),
    ("echo nan > $V/reward.txt", "one finite number"), ("echo inf > $V/reward.txt", "one finite number"),
    ("echo 1e999 > $V/reward.txt", "not finite"), ("echo NaN > $V/reward.json", "not finite"),
    ("echo '{\"reward\": Infinity}' > $V/reward.json", "not finite"), ("echo 1.5 > $V/reward.txt", "outside of [0, 1]"),
    ("echo -0.1 > $V/reward.txt", "outside of [0, 1]"), ("echo 1_0 > $V/reward.txt", "one finite number"),
    ("echo '{\"reward\": 0, \"reward\": 1}' > $V/reward.json", "twice"),
    ("echo '{\"a\": 2, \"b\": 0}' > $V/reward.json", "outside of [0, 1]"),
    ("echo '\"1\"' > $V/reward.json", "is no number"), ("echo true > $V/reward.json", "is no number"),
    ("echo '{\"reward\": true}' > $V/reward.json", "is no number"), ("echo '{}' > $V/reward.json", "0 numbers"),
    ("echo '[1]' > $V/reward.json", "is no number"), ("echo null > $V/reward.json", "is no number"),
    ("yes '[' | head -5000 | tr -d '\\n' > $V/reward.json", "not JSON"),
    ("printf '\\377' > $V/reward.txt", "not UTF-8"),
    ("echo 1 > /tmp/r; ln -s /tmp/r $V/reward.txt", "is a link"), ("mkdir $V/reward.json", "is a folder"),
    ("mkfifo $V/reward.txt", "is a pipe"), ("echo 1 > /tmp/r; ln /tmp/r $V/reward.txt", "second name"),
    ("echo 1 > /tmp/reward.txt; rmdir $V/; rm -rf /tmp/headrace/logs/verifier; ln -s /tmp /tmp/headrace/logs/verifier",
     "out of reach"), ("apt-get install -y frobnicate; echo 0 > $V/reward.txt", "does not have"),
    ("python3 -m pip install -q frobnicate; echo 0 > $V/reward.txt", "does not have"),
    ("python3 -m venv /tmp/v && . /tmp/v/bin/activate && pip install frobnicate; echo 0 > $V/reward.txt",
     "does not have"), ("uv add frobnicate; echo 0 > $V/reward.txt", "does not have"),
    ("uvx --with frobnicate pytest --version; echo 0 > $V/reward.txt", "does not have"),
    ("pip install frobnicate==1.0; echo 0 > $V/reward.txt", "does not have"),
    ("curl -sSf https://example.com/x; echo 0 > $V/reward.txt", "does not have"),
    ("echo 1 > $V/reward.txt; kill -9 $$", "were killed"), ("head -c 300M /dev/zero", "without end")])
def test_what_is_no_reward_is_no_zero(rig: Rig, task: Task, test: str, said: str) -> None:
    score = rig.score(rig.hand_in(with_tests(task, f"V=/logs/verifier\necho some output\n{test}\n")))
    assert (score.status, score.reward) == (ScoreStatus.VERIFIER_ERROR, None), rig.evidence(score)
    assert said in what(rig, score)
    assert "output" in rig.evidence(score)["details"]["output"] or "without end" in said


def test_tests_that_never_end_are_no_zero(rig: Rig, task: Task) -> None:
    endless = with_tests(task, "echo 1 > /logs/verifier/reward.txt\nsleep 1000 & setsid sleep 1000\n")
    score = rig.score(rig.hand_in(endless), deadline_s=4.0)
    assert score.status == ScoreStatus.VERIFIER_ERROR and "did not end" in what(rig, score)


@pytest.mark.parametrize("program", [
    "import os; os.kill(os.getppid(), 9)", "x = []\nwhile True: x.append(bytearray(10**7))",
    "import os; os.close(1); os.abort()"])
def test_a_program_that_takes_its_test_down_gets_what_the_script_says(rig: Rig, tmp_path: Path, program: str) -> None:
    task = one(tmp_path, test="bash -c '[ \"$(python3 /app/main.py)\" = 42 ]' && R=1 || R=0\n"
                              "echo $R > /logs/verifier/reward.txt\n")
    score = after(rig, task, f"cat > main.py <<'END'\n{program}\nEND")
    assert (score.status, score.reward) == (ScoreStatus.OK, 0.0), rig.evidence(score)


def test_the_environment_of_task_and_tests(rig: Rig, tmp_path: Path) -> None:
    toml = ('version = "1.0"\n[environment]\nworkdir = "/srv/site"\nenv = { COLOUR = "${COLOUR:-red}" }\n'
            '[verifier]\nenv = { WANT = "red" }\n')
    task = one(tmp_path, toml=toml, solve='echo "$COLOUR" > /srv/site/colour',
               test='[ "$(cat colour)" = "$WANT" ] && [ "$PWD" = /srv/site ] && R=1 || R=0\n'
                    "echo $R > /logs/verifier/reward.txt\n")
    assert rig.score(rig.play(task, task.reference)).reward == 1.0


def test_aliases_are_the_workspace_and_nothing_else_can_be_written(rig: Rig) -> None:
    sandbox = rig.backend.acquire(SandboxSpec(files={"a": b"1"}, aliases=["/app", "/home/user/project"]))
    try:
        said = sandbox.exec(["sh", "-c", "cd /app && echo 2 >b; cat /home/user/project/a /workspace/b; echo >/home/x"])
        assert said.stdout == b"12\n" and b"Read-only" in said.stderr and sandbox.read("b") == b"2\n"
    finally:
        sandbox.close()
    plain = rig.backend.acquire(SandboxSpec())
    try:
        assert plain.exec(["ls", "-A", "/app"]).stdout == b"", "another sandbox sees none of it"
    finally:
        plain.close()


@pytest.mark.parametrize("alias", ["/", "app", "/app/", "/app/../etc", "/etc/x", "/workspace/x", "/usr/x", "/tmp/x"])
def test_an_alias_that_cannot_be_is_refused(rig: Rig, alias: str) -> None:
    from schemas.errors import SandboxError

    with pytest.raises(SandboxError, match="cannot be seen"):
        rig.backend.acquire(SandboxSpec(aliases=[alias]))




def test_an_older_task_is_judged_by_its_exit_code(rig: Rig, tmp_path: Path) -> None:
    folder = tmp_path / "old"
    (folder / "tests").mkdir(parents=True)
    (folder / "task.yaml").write_text("instruction: Write 42 to answer.txt.\n")
    (folder / "run-tests.sh").write_text("uv venv .tbench\nsource .tbench/bin/activate\nuv pip install pytest==8.4.1\n"
                                         "uv run pytest $TEST_DIR/test_outputs.py -rA\n")
    (folder / "tests" / "test_outputs.py").write_text(OUTPUTS)
    (folder / "solution.sh").write_text(SOLVE)
    task, = load_tasks("terminal_bench", folder)
    assert [rig.score(rig.play(task, turns)).reward for turns in (task.reference, [])] == [1.0, 0.0]


PROBES = Task(task_id="p", kind="terminal", set="s", prompt="p", hidden={"probes": []})


def probed(rig: Rig, probes: list[dict[str, object]], *commands: str, **hidden: object) -> ScoreRecorded:
    task = msgspec.structs.replace(PROBES, hidden={"probes": probes, **hidden})
    return after(rig, task, *commands)


@pytest.mark.parametrize(("probe", "right", "wrong"), [
    ({"file": "a"}, "echo > a", "mkdir a"), ({"file": "a", "kind": "absent"}, ":", "ln -s nowhere a"),
    ({"file": "a", "mode": "4755"}, "touch a && chmod 4755 a", "touch a && chmod 755 a"),
    ({"file": "a", "uid": 1000, "gid": 1000, "size": 2}, "printf 12 > a", "printf 123 > a"),
    ({"file": "a", "sha256": "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"}, "printf 1 > a",
     "printf 2 > a"),
    ({"file": "a", "equals": "x\n"}, "echo x > a", "echo x > b; ln -s b a"),
    ({"file": "a", "contains": ["x", "y"], "lacks": "z"}, "echo xy > a", "echo xyz > a"),
    ({"file": "a", "matches": "^b+$"}, "printf 'a\\nbbb\\n' > a", "echo abbb > a"),
    ({"file": "a", "json": {"n": 1, "b": True}}, "echo '{\"b\":true,\"n\":1}' > a", "echo '{\"b\":1,\"n\":1}' > a"),
    ({"file": "a", "contains": "x"}, "echo x > a", "head -c 3000000 /dev/zero | tr '\\0' x > a"),
    ({"file": "d", "kind": "folder", "names": ["x"]}, "mkdir d; touch d/x", "mkdir d; touch d/x d/.y"),
    ({"file": "a", "kind": "link", "target": "b"}, "ln -s b a", "ln -s ./b a"),
    ({"command": "sh ./go", "equals": "1\n"}, "echo 'echo 1' > go", "echo 'echo 1; exit 3' > go"),
    ({"command": "sh ./go", "lacks": "x", "exit": 2}, "echo 'exit 2' > go", "echo 'yes | head -c 9M; exit 2' > go"),
    ({"command": "sh ./go", "deadline_s": 0.5}, "echo : > go", "echo 'sleep 99' > go"),
    ({"port": 8123, "start": "python3 -m http.server 8123 --bind 127.0.0.1"}, ":", None),
    ({"port": 8123, "start": "python3 serve.py", "deadline_s": 1}, "echo 'import socket; s = socket.socket(); "
     "s.bind((\"127.0.0.1\", 8123)); s.listen(); s.accept()' > serve.py", "echo > serve.py"),
    ({"process": "worker", "start": "./worker 60", "deadline_s": 1}, "cp /bin/sleep worker", "cp /bin/true worker"),
    ({"git": ".", "ref": "main", "subject": "^ok$"},
     "git -c init.defaultBranch=main init -q; git -c user.name=a -c user.email=b commit -q --allow-empty -m ok",
     "git init -q"),
    ({"git": "."}, "git init -q; git -c user.name=a -c user.email=b commit -q --allow-empty -m ok",
     "mkdir .git; echo main > .git/HEAD; printf '#!/bin/sh\\nexit 0\\n' > git; chmod +x git")])
def test_probes_hold_or_not(rig: Rig, probe: dict[str, object], right: str, wrong: str | None) -> None:
    assert probed(rig, [probe], right).reward == 1.0
    if wrong is not None:
        score = probed(rig, [probe], wrong)
        assert (score.status, score.reward) == (ScoreStatus.OK, 0.0)
        assert rig.evidence(score)["details"]["probes"][0]["wrong"]


def test_a_probe_that_fails_says_what_was_wanted_and_what_was_found(rig: Rig) -> None:
    score = probed(rig, [
        {"file": "a", "equals": "wanted\n"}, {"file": "a", "lines": ["wanted"]}, {"file": "b", "json": {"n": 1}},
        {"git": ".", "branch": "wanted"}, {"git": ".", "subject": "^wanted$"}, {"git": ".", "commit": "wanted"}],
        "echo found > a; echo '{\"n\": 2}' > b; git -c init.defaultBranch=main init -q; "
        "git -c user.name=a -c user.email=b commit -q --allow-empty -m found")
    told = [probe["wrong"] for probe in rig.evidence(score)["details"]["probes"]]
    assert told[:5] == [
        r"reads 'found\n', not 'wanted\n'", r"has other lines than ['wanted']: 'found\n'",
        """holds another value than {'n': 1}: '{"n": 2}\\n'""", "is on main, not wanted",
        "HEAD says 'found', which does not match '^wanted$'"]
    assert told[5].startswith("HEAD is ") and told[5].endswith(", not wanted")


def test_weights_and_gates_of_probes(rig: Rig) -> None:
    probes: list[dict[str, object]] = [{"file": "a", "weight": 3}, {"file": "b"},
                                       {"file": "bad", "kind": "absent", "gate": True, "weight": 0}]
    assert probed(rig, probes, "touch a", reward="rate").reward == 0.75
    assert probed(rig, probes, "touch a b bad", reward="rate").reward == 0.0 == probed(rig, probes, "touch a").reward


@pytest.mark.parametrize("probes", [
    [{"file": "a", "command": "b"}], [{"fiel": "a"}], [{"file": "a", "moed": "0600"}], [{"file": "a", "weight": True}],
    [{"file": "a", "matches": "("}], [{"file": "a", "weight": 0}], []])
def test_probes_that_say_nothing_are_errors_of_the_task(rig: Rig, probes: list[dict[str, object]]) -> None:
    assert probed(rig, probes, "touch a").status == ScoreStatus.VERIFIER_ERROR
