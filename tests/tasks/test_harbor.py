"""Harbor and older Terminal-Bench folders are imported whole or refused with the place, the value and a hint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.cli import main
from schemas.errors import TaskError
from tasks.importers import load_tasks
from tasks.importers.harbor import strip_canary
from tests.verifiers.harbor_folders import harbor


def test_a_task_is_data(tmp_path: Path) -> None:
    toml = ('schema_version = "1.2"\n[task]\nname = "org/answer"\n[agent]\ntimeout_sec = 90\n[environment]\n'
            'docker_image = "x:1"\nnetwork_mode = "public"\n')
    docker = ("FROM ubuntu\nRUN apt-get install -y \\\n  jq\nWORKDIR /app\nENV A=1 B='two words'\nENV C three four\n"
              "ENV PATH=/venv/bin:$PATH\n"
              "COPY data/ ./data/\nCOPY seed.txt /app/\nCOPY seed.txt /etc/seed\nADD seed.txt other.txt\n")
    folder = harbor(tmp_path / "x", toml=toml, environment__Dockerfile=docker, environment__seed_DOT_txt="seed",
                    environment__data__in_DOT_csv="1,2", tests__data__want_DOT_txt="w")
    task, = load_tasks("harbor", folder)
    assert (task.task_id, task.kind, task.set, task.aliases) == ("org/answer", "terminal", "harbor", ["/app"])
    assert task.files == {"data/in.csv": b"1,2", "seed.txt": b"seed", "other.txt": b"seed"}
    assert task.environment == {"A": "1", "B": "two words", "C": "three four"} and task.limits.wall_clock_s == 90.0
    assert task.prompt.startswith("Write 42 to /app/answer.txt.") and "canary" not in task.prompt
    assert set(task.hidden["script"]["files"]) == {"test.sh", "data/want.txt"}
    assert task.hidden["notes"] == ["not done: RUN apt-get install -y  jq", "not done: ENV PATH=/venv/bin:$PATH",
                                    "image x:1 is not used", "there is no network"]
    assert [command for command in task.setup if "/etc/seed" in command and "c2VlZA==" in command] == task.setup


def test_places_that_are_not_kept_are_noted(tmp_path: Path) -> None:
    folder = harbor(tmp_path / "x", instruction="Write /app/a, ./etc/b, /data/out.csv and /root/c.")
    task, = load_tasks("harbor", folder)
    assert task.hidden["notes"] == ["there is no network", "/data is not kept", "/root is not kept"]


@pytest.mark.parametrize(("text", "left"), [
    ("<!-- harbor-canary X -->\n\nDo it.\n", "Do it."), ("# BENCHMARK canary GUID\n# canary 2\n\n\nDo it.", "Do it."),
    ("Do it.\n# canary here stays\n", "Do it.\n# canary here stays"), ("# Title\nDo", "# Title\nDo")])
def test_leading_canary_lines_are_stripped(text: str, left: str) -> None:
    assert strip_canary(text) == left


@pytest.mark.parametrize(("toml", "where", "said"), [
    ('schema_version = "9.0"', "schema_version", "version"), ("schema_version = ", "task.toml", "not TOML"),
    ('environment = 3', "[environment]", "must be a table"), ('[[steps]]\nname = "a"', "steps", "several steps"),
    ('[environment]\nos = "windows"', "os", "linux"), ("[environment]\ngpus = 1", "gpus", "GPU"),
    ('[[environment.mcp_servers]]\nname = "x"', "mcp_servers", "MCP"),
    ('[[verifier.collect]]\ncommand = "x"', "collect", "collect"),
    ('[environment]\nworkdir = "/"', "workdir", "workspace"), ('[environment]\nworkdir = "/etc/x"', "workdir", "work"),
    ('[agent]\ntimeout_sec = -1', "[agent] timeout_sec", "time limit"),
    ('[verifier]\ntimeout_sec = nan', "[verifier] timeout_sec", "time limit"),
    ('[agent]\ntimeout_sec = true', "[agent] timeout_sec", "time limit"),
    ('[verifier.env]\nKEY = "${OPENAI_API_KEY}"', "[verifier.env] KEY", "comes from the machine")])
def test_what_cannot_be_judged_is_refused(tmp_path: Path, toml: str, where: str, said: str) -> None:
    with pytest.raises(TaskError, match=said) as caught:
        load_tasks("harbor", harbor(tmp_path / "x", toml=toml))
    assert where in caught.value.where and caught.value.hint and caught.value.exit_code == 2


def test_folders_that_are_no_tasks(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(TaskError, match="folder"):
            load_tasks("harbor", path)
    broken = harbor(tmp_path / "x")
    (broken / "environment" / "docker-compose.yaml").write_text("services: {}")
    with pytest.raises(TaskError, match="containers"):
        load_tasks("harbor", broken)
    (broken / "environment" / "docker-compose.yaml").unlink()
    (broken / "tests" / "passwd").symlink_to("/etc/passwd")
    with pytest.raises(TaskError, match="link leads out"):
        load_tasks("harbor", broken)
    (broken / "tests" / "passwd").unlink()
    (broken / "tests" / "test.sh").unlink()
    with pytest.raises(TaskError, match="no test script"):
        load_tasks("harbor", broken)


def test_a_folder_of_tasks_may_mix_both_formats(tmp_path: Path) -> None:
    harbor(tmp_path / "b")
    old = tmp_path / "a"
    (old / "tests").mkdir(parents=True)
    (old / "task.yaml").write_text("instruction: |\n  Write 42.\nmax_agent_timeout_sec: 12\n")
    (old / "run-tests.sh").write_text("#!/bin/bash\nbash $TEST_DIR/check.sh\n")
    (old / "tests" / "check.sh").write_text("[ \"$(cat answer.txt)\" = 42 ]\n")
    (old / "solution.yaml").write_text("- command: echo 42 > answer.txt\n  min_timeout_sec: 1.0\n")
    (old / "Dockerfile").write_text("FROM x\nWORKDIR /app\nCOPY . /app\n")
    (old / "given.txt").write_text("given")
    first, second = load_tasks("harbor", tmp_path)
    assert (first.task_id, first.set, first.limits.wall_clock_s) == ("a", "terminal-bench", 12.0)
    assert first.files == {"given.txt": b"given"}, "neither tests nor the solution are copied to the policy"
    assert first.hidden["script"]["by_exit_code"] and second.set == "harbor"
    assert [turn for turn in first.reference if "echo 42" in turn]


def test_the_sound_tasks_of_a_folder_are_taken_and_the_others_told(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b", "c"):
        harbor(tmp_path / "tasks" / name)
    (tmp_path / "tasks" / "b" / "tests" / "test.sh").unlink()
    refused: list[TaskError] = []
    assert len(load_tasks("harbor", tmp_path / "tasks", refused)) == 2
    assert [str(tmp_path / "tasks" / "b") in wrong.where for wrong in refused] == [True]
    assert main(["tasks", "import", "harbor", str(tmp_path / "tasks"), "--home", str(tmp_path / "home")]) == 1
    out = capsys.readouterr().out
    assert "registered 2 tasks" in out and "not taken: there is no test script" in out and "1 of 3 tasks" in out
    for name in ("a", "c"):
        (tmp_path / "tasks" / name / "tests" / "test.sh").unlink()
    with pytest.raises(TaskError, match="no test script"):
        load_tasks("harbor", tmp_path / "tasks", refused)


def test_the_template(cases: Callable[[str], Path]) -> None:
    task, = load_tasks("harbor", cases("terminal/harbor-template-task"))
    assert (task.task_id, task.aliases, task.limits.wall_clock_s) == ("harbor-template-task", ["/app"], 900.0)
    assert set(task.hidden["script"]["files"]) == {"Dockerfile", "test.sh"} and task.reference


DOCKER = """# syntax=docker/dockerfile:1
ARG PLACE=/srv/data
FROM golang AS build
RUN go build -o /out
FROM ubuntu:24.04
ARG PLACE=/srv/data
ENV ROOT=/app NAME="two words"
ENV INDEX=$ROOT/index.txt
WORKDIR $ROOT
COPY --from=build /out /usr/bin/out
COPY --chown=1000:1000 ["seed file.txt", "./"]
COPY <<EOF notes/a.txt
# not a comment
hello
EOF
RUN apt-get update \\
    # tools
    && apt-get install -y jq \\
    && rm -rf /var/lib/apt/lists/*
RUN apt-get install -y git && mkdir -p $PLACE && echo "$NAME" > $INDEX
RUN ["sh", "-c", "echo json > form.txt"]
RUN <<EOF
cat "seed file.txt" > copy.txt
EOF
RUN false && echo never > never.txt
RUN curl -sSf https://example.com/x > fetched.txt && echo more > more.txt
CMD ["bash"]
"""


def test_a_dockerfile_is_followed_as_far_as_it_goes(tmp_path: Path) -> None:
    folder = harbor(tmp_path / "x", environment__Dockerfile=DOCKER)
    (folder / "environment" / "seed file.txt").write_text("seed")
    task, = load_tasks("harbor", folder)
    assert task.files == {"seed file.txt": b"seed", "notes/a.txt": b"# not a comment\nhello\n"}
    assert task.environment == {"ROOT": "/app", "NAME": "two words", "INDEX": "/app/index.txt"}
    assert [note.partition(":")[0] for note in task.hidden["notes"]] == [
        "not done", "not done", "done without what it installs or fetches", "done without what it installs or fetches",
        "there is no network"]
    assert len(task.setup) == 6 and "printf" in task.setup[0] and "go build" not in "".join(task.setup)


@pytest.mark.parametrize(("toml", "more", "note"), [
    ("[environment.healthcheck]\ncommand = 'true'", {}, "the health check is not run"),
    ("[environment]\nmemory_mb = 4096", {}, "memory is 512 MB, not 4096"),
    ("[environment]\nskills_dir = '/skills'", {}, "skills are not given to the policy"),
    ("[agent]\nuser = 'agent'", {}, "commands do not run as the user agent"),
    ("[verifier]\nuser = 'root'", {}, "tests do not run as the user root"),
    ("artifacts = ['/app/x']\n[verifier]\nenvironment_mode = 'separate'", {},
     "tests see the whole workspace, not the declared artifacts alone"),
    ("", {"tests__Dockerfile": "FROM x"}, "the verifier's own image is not used"),
    ("", {"test": "#!/bin/bash\n# later\n"}, "tests/test.sh holds no command, so no reward comes of it")])
def test_what_a_task_asks_for_and_does_not_get_is_noted(
        tmp_path: Path, toml: str, more: dict[str, str], note: str) -> None:
    """PrimeIntellect-ai/verifiers#2354, #1921, #2152: parts of the format that look supported and quietly are not."""
    task, = load_tasks("harbor", harbor(tmp_path / "x", toml=toml, **more))
    assert note in task.hidden["notes"]


def test_an_import_says_what_tasks_do_not_get(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from headrace.cli import main

    for name in ("a", "b"):
        harbor(tmp_path / "tasks" / name, environment__Dockerfile="FROM x\nRUN apt-get install -y jq\n")
    assert main(["tasks", "import", "harbor", str(tmp_path / "tasks"), "--home", str(tmp_path / "home")]) == 0
    said = capsys.readouterr().out
    assert "note: not done: RUN apt-get install -y jq (2 tasks)\nnote: there is no network (2 tasks)\n" in said
