"""The command line as a user meets it: help at once, mistakes as one paragraph with exit code 2."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli import COMMANDS, main


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
    "no home yet": (["sql", "select 1"], "headrace demo"),
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


def test_an_unknown_setting_is_an_error_with_a_suggestion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "headrace.toml").write_text("[sandbox]\nmemroy_mb = 300\n")
    assert main(["config", "show"]) == 2
    error = capsys.readouterr().err
    assert "headrace.toml" in error and "sandbox_memroy_mb" in error and "did you mean `sandbox_memory_mb`?" in error
