"""`docs/extending.md` as a newcomer follows it: its files, its commands, a real sandbox and log."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from headrace.cli import main
from schemas.errors import TaskError
from tasks.importers import load_tasks
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "extending.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_page_is_followed_word_by_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    (tmp_path / "anagrams.jsonl").write_text(block("json"))
    (tmp_path / "anagram.py").write_text(block("python"))
    commands = [shlex.split(line)[1:] for line in block("sh").splitlines() if line.startswith("headrace ")]
    assert [command[0] for command in commands] == ["tasks", "tasks", "run", "replay"]
    said = []
    for command in commands:
        assert main(command) == 0, capsys.readouterr()
        said.append(capsys.readouterr().out)
    assert "registered 1 task in set anagrams" in said[0]
    assert "5 scored again: 5 equal" in said[3]  # The check ran the solution three times and an empty one.
    assert main(["run", "--tasks", "anagrams", "--policy", "scripted:empty"]) == 0
    said_of = capsys.readouterr().err.splitlines()[-1]
    assert said_of.startswith("1 episode without a verdict; `headrace episodes ls --failed --run ")
    query = "select reward, count(*) n from current_scores where status = 'ok' group by 1 order by 1"
    assert main(["sql", query, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"reward": 0.0, "n": 1}, {"reward": 1.0, "n": 4}]


def row(**changed: object) -> str:
    return json.dumps({"task_id": "a", "kind": "k", "prompt": "p", **changed})


def test_tasks_of_our_own_form_are_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.v2.jsonl"
    path.write_text(row(files={"a": "\u00e9", "b": {"base64": "/w=="}}) + "\n\n" + row(task_id="b", set="other"))
    first, second = load_tasks("jsonl", path)
    assert first.set == "mine" and first.files == {"a": "\u00e9".encode(), "b": b"\xff"}
    assert second.set == "other" and second.task_id == "b"


@pytest.mark.parametrize(("line", "where", "what"), [
    (row(kind=""), "mine.jsonl:1 $.kind", "empty"),
    ('{"task_id": "a", "kind": "k"}', "mine.jsonl:1 $.prompt", "missing"),
    (row(promt="p"), "mine.jsonl:1", "promt"),
    (row(files=[]), "$.files", "not an object"),
    (row(files={"a": 1}), "$.files['a']", "neither"),
    (row(files={"a": {"base64": "!"}}), "$.files['a']", "base64"),
    (row(tools="run"), "mine.jsonl:1", "tools"),
    (row() + "\n" + row(), "mine.jsonl:2 $.task_id", "twice"),
    ("", "mine.jsonl", "no tasks")])
def test_a_broken_line_is_told(tmp_path: Path, line: str, where: str, what: str) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(line)
    with pytest.raises(TaskError) as told:
        load_tasks("jsonl", path)
    assert where in str(told.value.where) and what in str(told.value)


def test_a_verifier_file_that_is_not_there_is_told_before_anything_is_requested(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = str(tmp_path / "home")
    assert main(["run", "--tasks", "coding", "--policy", "scripted:reference", "--home", home,
                 "--verifier", str(tmp_path / "none.py")]) == 2
    said = capsys.readouterr().err
    assert "verifier file cannot be read" in said and "episodes" not in said
