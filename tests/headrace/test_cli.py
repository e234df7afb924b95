"""The command line as a user meets it: help at once, mistakes as one paragraph with exit code 2."""

from __future__ import annotations

import argparse
import importlib
import json
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from eventlog import open_log
from headrace.cli import COMMANDS, main
from schemas.settings import Settings
from schemas.topics import TOPICS
from tests.conftest import REPOSITORY


def headrace(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace", *arguments], capture_output=True, text=True, cwd=cwd, timeout=120
    )


def test_help_starts_within_300_ms() -> None:
    """Processor time: what the command itself takes, however busy the machine is. It hardly waits for anything."""
    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert headrace("--help").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(once() for _ in range(5)) < 0.3


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from headrace.cli import main\ntry: main(['sql', '--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('torch', 'pyarrow', 'duckdb', 'deltalake', 'dagster', 'kafka') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main([command, "--help"])
    shown = capsys.readouterr().out
    assert done.value.code == 0
    assert f"headrace {command}" in shown.split("examples:")[1]


def test_every_command_that_a_hint_or_a_page_names_is_there() -> None:
    known = {command: _actions(command) for command in COMMANDS}
    named = set()
    for path in [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("*/**/*.py")]:
        top = path.relative_to(REPOSITORY).parts[0]
        if top != "tests" and not top.startswith("."):
            named |= set(re.findall(r"`headrace ([a-z][a-z-]*)(?: ([a-z]+))?", path.read_text(encoding="utf-8")))
    assert len(named) > 15
    absent = [
        (command, action)
        for command, action in sorted(named)
        if command not in known or (action and known[command] and action not in known[command])
    ]
    assert absent == []


def _actions(command: str) -> set[str]:
    parser = argparse.ArgumentParser()
    importlib.import_module(f"headrace.commands.{command}").add_arguments(parser)
    return {name for action in parser._actions if action.dest == "action" for name in action.choices or ()}


def test_config_show_names_the_source_of_every_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "headrace.toml").write_text("[sandbox]\nmemory_mb = 300\npids = 50\n")
    monkeypatch.setenv("HEADRACE_SANDBOX_PIDS", "60")
    assert main(["config", "show", "-o", "json", "--home", "elsewhere"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["sandbox_memory_mb"] == {"value": 300, "source": "headrace.toml"}
    assert shown["sandbox_pids"] == {"value": 60, "source": "HEADRACE_SANDBOX_PIDS"}
    assert shown["home"] == {"value": "elsewhere", "source": "flag"}
    assert shown["log"] == {"value": "sqlite", "source": "default"}


WRONG = {
    "unknown command": (["tsks"], "did you mean `headrace tasks`?"),
    "unknown flag": (["sql", "--hom", "x", "select 1"], "unrecognized arguments: --hom"),
    "misspelt flag": (["demo", "--stps", "3"], "did you mean `--steps`?"),
    "temperature": (["run", "--tasks", "coding", "--policy", "tiny", "--temperature", "nan"], "'nan'"),
    "half a run id": (["learn", "--run", "0190b2c4"], "'0190b2c4'"),
    "no home yet": (["sql", "select 1"], "headrace demo"),
    "query without quotes": (["sql", "select", "count", "from", "episodes"], "put quotes around"),
    "negative limit": (["episodes", "ls", "--limit", "-3"], "-3"),
    "neither one nor all": (["replay", "score"], "--all"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_one_paragraph_and_exit_2(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, expected = WRONG[name]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error[") and "Traceback" not in error
    assert expected in error
    assert len(error.strip().splitlines()) <= 2
    assert list(tmp_path.iterdir()) == [], "a mistake must leave nothing behind"


@pytest.mark.parametrize(("redirected", "code", "told"), [("> /dev/full", 2, "disk is full"), (">&-", 0, "")])
def test_an_output_that_takes_nothing_is_told_in_a_paragraph(redirected: str, code: int, told: str) -> None:
    done = subprocess.run(["sh", "-c", f"{sys.executable} -m headrace config show {redirected}"], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == code and told in done.stderr and "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize(
    "key, value", [("sandbox_memory_mb", "-5"), ("verify_workers", "0"), ("tool_deadline_s", "nan")]
)
def test_a_setting_out_of_range_is_named(
    key: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(f"HEADRACE_{key.upper()}", value)
    assert main(["config", "show"]) == 2
    error = capsys.readouterr().err
    assert key in error and f"HEADRACE_{key.upper()}" in error and value in error


def test_a_folder_of_something_else_is_no_home(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["request", "--tasks", "coding", "--policy", "scripted:empty", "--home", str(tmp_path)]) == 2
    assert "notes.txt" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.fixture(scope="module")
def filled_home(tmp_path_factory: pytest.TempPathFactory) -> str:
    home = str(tmp_path_factory.mktemp("filled"))
    assert main(["request", "--tasks", "coding", "--policy", "scripted:empty", "--home", home]) == 0
    assert main(["sink", "--until-idle", "--home", home]) == 0
    return home


@pytest.mark.parametrize("arguments", [
    ["episodes", "ls", "--run", "zz"], ["episodes", "ls", "--kind", "codin"], ["episodes", "show", "zz"],
    ["scores", "ls", "--episode", "zz"], ["batches", "ls", "--run", "zz"], ["batches", "show", "zz"],
    ["tasks", "ls", "--set", "zz"],
])
def test_what_was_never_recorded_is_an_error_not_an_empty_list(
    arguments: list[str], filled_home: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--home", filled_home]) == 2
    assert "error[not-found]" in (error := capsys.readouterr().err) and repr(arguments[-1]) in error


@pytest.mark.parametrize("command", ["demo --steps 1", "run --tasks coding --policy scripted:empty"])
def test_a_lake_of_another_log_is_found_before_anything_is_requested(
    command: str, filled_home: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(Path(filled_home) / "lake", tmp_path / "lake")
    assert main([*command.split(), "--sandbox", "process", "--home", str(tmp_path)]) == 2
    assert "error[lake]" in capsys.readouterr().err
    log = open_log(Settings(home=str(tmp_path)))
    assert not any(log.ends(TOPICS).values())
    log.close()


def test_no_batches_are_a_table_without_rows(filled_home: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["batches", "rebuild", "--all", "--home", filled_home]) == 0
    assert capsys.readouterr().out.split() == [
        "batch_id", "run_id", "step", "result", "detail", *("-" * len(name) for name in (
            "batch_id", "run_id", "step", "result", "detail")), "0", "of", "0", "batches", "identical"]


def test_status_is_one_json_document(filled_home: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--home", filled_home, "-o", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert sum(row["lag"] for row in shown["readers"]) == 0
    assert [(row["episodes"], row["pending"]) for row in shown["runs"]] == [(8, 8)]


def test_an_unknown_setting_is_an_error_with_a_suggestion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "headrace.toml").write_text("[sandbox]\nmemroy_mb = 300\n")
    assert main(["config", "show"]) == 2
    error = capsys.readouterr().err
    assert "headrace.toml" in error and "sandbox_memroy_mb" in error and "did you mean `sandbox_memory_mb`?" in error
