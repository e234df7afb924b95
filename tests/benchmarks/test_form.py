"""Every benchmark is asked alike and answers alike; the page is made from the answers. Slow ones are not run here."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import REPOSITORY

FOLDER = REPOSITORY / "benchmarks"
SHARED = {"harness", "report"}
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in SHARED)
FORM = {"question", "value", "unit", "target", "holds", "against", "rounds"}


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=REPOSITORY, timeout=120,
                          check=False)


def assert_form(line: str) -> None:
    answer = json.loads(line)
    assert set(answer) == FORM
    assert isinstance(answer["question"], str) and isinstance(answer["unit"], str)
    assert isinstance(answer["rounds"], int) and isinstance(answer["against"], str | None)
    assert isinstance(answer["value"], int | float | None) and isinstance(answer["holds"], bool | None)
    if answer["target"] is None or answer["value"] is None:
        assert answer["holds"] is None
    else:
        relation, bound = answer["target"].split()
        assert relation in (">=", "<=") and float(bound) is not None


@pytest.mark.parametrize("name", NAMES)
def test_help_names_the_options_that_all_share(name: str) -> None:
    told = run(str(FOLDER / f"{name}.py"), "--help")
    assert told.returncode == 0, told.stderr
    assert "--quick" in told.stdout and "--seed" in told.stdout


def test_the_report_knows_every_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sorted(load("report", monkeypatch).available()) == NAMES


def test_a_missed_target_and_a_missing_value_are_told_apart(monkeypatch: pytest.MonkeyPatch,
                                                            capsys: pytest.CaptureFixture[str]) -> None:
    harness = load("harness", monkeypatch)
    given = [harness.answer("a", 0.69, "x", ">= 0.7"), harness.answer("b", 100, "ms", "<= 100"),
             harness.answer("c", None, "x", ">= 0.7", "no broker"), harness.answer("d", 1, "x"),
             harness.answer("e", 1, "x", "<= 2", also=False)]
    assert given == [False, True, True, True, False]
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["holds"] for line in lines] == [False, True, None, None, False]
    for line in lines:
        assert_form(line)


def test_rounds_are_interleaved_and_ratios_paired(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = load("harness", monkeypatch)
    order: list[str] = []

    def side(name: str, value: float) -> float:
        order.append(name)
        return value

    found = harness.interleaved(3, {"ours": lambda: side("o", 2.0), "bare": lambda: side("b", 1.0)})
    assert "".join(order) == "boobbo"
    assert harness.ratio(found["bare"], found["ours"]) == 0.5


def test_the_page_is_made_from_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    report = load("report", monkeypatch)
    results = json.loads(report.RESULTS.read_text(encoding="utf-8"))
    assert set(results) <= set(NAMES)
    for one in results.values():
        for line in one["answers"]:
            assert_form(json.dumps(line))
    assert report.PAGE.read_text(encoding="utf-8") == report.page(results)


def test_a_quick_run_prints_nothing_but_answers(tmp_path: Path) -> None:
    told = run(str(FOLDER / "lake_sql.py"), "--quick", "--rows", "100000", "--keep", str(tmp_path))
    assert told.returncode in (0, 1), told.stderr
    lines = told.stdout.splitlines()
    assert len(lines) == 5
    for line in lines:
        assert_form(line)
