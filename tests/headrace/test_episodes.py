"""Failed episodes are kept, found by why they failed, and their workspace opens again."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import main
from headrace.rooms import Rooms
from sandboxes import probe
from schemas.settings import Settings
from tests.conftest import require_real


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One run of partly right, one of empty solutions."""
    if why := probe("bubblewrap"):
        require_real("bubblewrap", why)
    home = str(tmp_path_factory.mktemp("home"))
    for policy in ("scripted:variant:partial", "scripted:empty", "scripted:reference"):
        assert main(["run", "--tasks", "coding", "--policy", policy, "--home", home, "-o", "json"]) == 0
    return home


def listed(capsys: pytest.CaptureFixture[str], home: str, *arguments: str) -> list[dict[str, Any]]:
    assert main(["episodes", "ls", "--home", home, "-o", "json", *arguments]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_failed_episodes_are_listed_with_what_kept_them_from_the_full_reward(
        home: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = listed(capsys, home, "--failed")
    assert len(rows) == 16 and all(row["reward"] < 1 for row in rows)
    assert all("tests_passed" in row["why"] and "tampering" not in row["why"] for row in rows)
    empty = [row["why"] for row in rows if row["policy"] == "scripted:empty"]
    assert len(empty) == 8 and all(why.endswith("; there is no solution.py") for why in empty)
    solved = [row for row in listed(capsys, home) if row["policy"] == "scripted:reference"]
    assert len(solved) == 8 and not any(row["why"] for row in solved)


def test_they_are_found_by_reason_and_by_evidence(home: str, capsys: pytest.CaptureFixture[str]) -> None:
    by_reason = listed(capsys, home, "--why", "TESTS_PASSED 0.5")
    assert by_reason and all(row["reward"] == 0.5 for row in by_reason)
    by_evidence = listed(capsys, home, "--failed", "--why", "solution.py")
    assert {row["policy"] for row in by_evidence} == {"scripted:empty"} and len(by_evidence) == 8
    assert len(listed(capsys, home, "--why", "solution.py", "--limit", "3")) == 3
    assert listed(capsys, home, "--why", "no such reason anywhere") == []


def test_a_list_that_is_not_whole_says_so(home: str, capsys: pytest.CaptureFixture[str],
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.commands.episodes._NEWEST", 3)
    assert main(["episodes", "ls", "--failed", "--home", home, "-o", "jsonl"]) == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 3 and "the newest 3; there are more" in shown.err
    for arguments in (["--limit", "4"], ["--limit", "500"], ["--why", "no such reason anywhere"]):
        assert main(["episodes", "ls", "--home", home, *arguments]) == 0
        assert capsys.readouterr().err == ""


def test_what_is_shown_of_a_call_that_ran_nothing_names_no_exit_code(
        home: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = next(row for row in listed(capsys, home) if row["policy"] == "scripted:variant:partial")
    assert main(["episodes", "show", shown["episode_id"], "--home", home]) == 0
    text = capsys.readouterr().out
    assert "[ok · exit 0 · " in text and "> done" in text and "exit None" not in text


def test_what_an_episode_did_not_hand_in_is_said_in_words(home: str, capsys: pytest.CaptureFixture[str]) -> None:
    empty = next(row for row in listed(capsys, home) if row["policy"] == "scripted:empty")
    assert main(["episodes", "show", empty["episode_id"], "--home", home]) == 0
    text = capsys.readouterr().out
    assert "no answer" in text and "workspace as the task gave it" in text and "None" not in text


def test_a_workspace_opens_again(home: str, capsys: pytest.CaptureFixture[str],
                                  monkeypatch: pytest.MonkeyPatch) -> None:
    partial = next(row for row in listed(capsys, home) if row["policy"] == "scripted:variant:partial")
    for _ in range(2):  # what the first visit does is gone in the second
        assert main(["episodes", "open", partial["episode_id"], "--home", home, "-c",
                     "ls; head -c 4 solution.py; echo more > added; (exit 5)"]) == 5
        assert capsys.readouterr().out == "solution.py\ndef "
    monkeypatch.setattr("sys.stdin", io.StringIO("cd /tmp\npwd\n"))
    assert main(["episodes", "open", partial["episode_id"][:30], "--home", home]) == 0
    assert capsys.readouterr().out == "/tmp\n"


def test_an_unknown_episode_is_told(home: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["episodes", "open", "ffff", "--home", home]) == 2
    assert "no such episode" in capsys.readouterr().err


def test_an_episode_is_shown_before_the_sink_has_it(home: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["request", "--tasks", "coding", "--policy", "scripted:reference", "--home", home])
    main(["sink", "--until-idle", "--home", home])
    main(["produce", "--until-idle", "--home", home])
    with Rooms(Settings(home=home)) as rooms:
        waiting = "select episode_id from requests anti join episodes using (episode_id) order by 1 limit 1"
        (episode_id,) = rooms.lake.sql(waiting)["episode_id"].to_pylist()
    capsys.readouterr()
    assert main(["episodes", "show", episode_id, "--home", home]) == 0
    assert "finished: completed" in capsys.readouterr().out
