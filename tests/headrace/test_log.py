"""`headrace log` as its users meet it: created once, described, verified with an exit code, followed until Ctrl-C."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from eventlog import open_log
from eventlog.log import EventLog
from headrace.cli import main
from schemas.codec import make_event
from schemas.envelope import Event
from schemas.events import EpisodeFinished, EpisodeStarted, SandboxInfo, ToolReturned, TurnGenerated
from schemas.settings import Settings
from schemas.tokens import pack_ids, pack_logprobs
from schemas.topics import SCORES, TOPICS, TRAJECTORIES
from tests.conftest import REPOSITORY
from tests.eventlog.conftest import broker, kafka_settings  # noqa: F401 (fixtures)

AT = 1_700_000_000_000_000
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\nfinished: completed"


def story(name: str) -> list[Event]:
    payloads = [
        EpisodeStarted(run_id="run", task_id="task", policy="tiny", sandbox=SandboxInfo(backend="process"), at=AT),
        TurnGenerated(turn=0, context=pack_ids([7, 8]), generated=pack_ids([9]), logprobs=pack_logprobs([-0.5]),
                      versions=[(1, 1)], text=ESCAPES, started_at=AT, finished_at=AT),
        ToolReturned(turn=0, call_id="c", status="ok", output=ESCAPES, at=AT),
        EpisodeFinished(termination="completed", at=AT),
    ]
    return [make_event(payload, subject=name, source="writer", time_us=AT + 1_000_000 * number, sequence=number)
            for number, payload in enumerate(payloads)]


@pytest.fixture
def home(tmp_path: Path) -> str:
    home = str(tmp_path / "home")
    log = open_log(Settings(home=home))
    for events in zip(*map(story, ("episode-a", "episode-b", "episode-c")), strict=True):
        log.append(TRAJECTORIES, events).result()
    log.close()
    return home


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["log", *arguments]) == code
    return capsys.readouterr().out


def rows(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


# -- create and describe ----------------------------------------------------------------------------------------------

def test_create_makes_the_topics_once_and_tells_of_other_counts(tmp_path: Path,
                                                                capsys: pytest.CaptureFixture[str]) -> None:
    home = ["--home", str(tmp_path / "home"), "-o", "jsonl"]
    made = rows(printed(capsys, "create", "--partitions", "3", *home))
    assert [row["topic"] for row in made] == list(TOPICS)
    assert {row["partitions"] for row in made} == {1, 3} and {row["retention"] for row in made} == {"unlimited"}
    assert {row["state"] for row in made} == {"made"}
    again = rows(printed(capsys, "create", *home))
    assert {row["state"] for row in again} == {"was there"} and {row["partitions"] for row in again} == {1, 3}
    assert main(["log", "create", "--partitions", "5", *home]) == 1
    assert "trajectories has 3 partitions and keeps them" in capsys.readouterr().err
    assert main(["log", "create", "--retention-days", "5", *home]) == 2
    assert "the embedded log keeps everything" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["describe", "verify", "tail"])
def test_looking_at_no_log_is_an_error_and_makes_nothing(action: str, tmp_path: Path,
                                                         capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", action, "--home", str(tmp_path / "home")]) == 2
    error = capsys.readouterr().err
    assert "error[not-found]: no log here" in error and "headrace log create" in error
    assert not (tmp_path / "home").exists()


def test_describe_tells_identity_ends_and_the_lag_of_groups(home: str, capsys: pytest.CaptureFixture[str]) -> None:
    log = open_log(Settings(home=home))
    subscription = log.subscribe([TRAJECTORIES], "readers", member="m")
    while not subscription.assignment():
        subscription.poll(0.1)
    subscription.commit({(TRAJECTORIES, 0): 1})
    told = json.loads(printed(capsys, "describe", "--home", home, "-o", "json"))
    while not told["groups"]:  # The commit is written without waiting.
        told = json.loads(printed(capsys, "describe", "--home", home, "-o", "json"))
    about = {row["name"]: row["value"] for row in told["log"]}
    assert (about["backend"], about["identity"]) == ("sqlite", log.identity) and int(about["file_bytes"]) > 0
    ends = {(row["topic"], row["partition"]): row["end"] for row in told["partitions"]}
    assert ends == log.ends(TOPICS)
    assert told["groups"] == [{"group": "readers", "topic": TRAJECTORIES, "partition": 0, "committed": 1,
                               "lag": ends[TRAJECTORIES, 0] - 1, "members": 1}]
    log.close()


# -- verify -----------------------------------------------------------------------------------------------------------

def test_verify_says_so_when_all_is_right(home: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "verify", "--home", home).endswith("no fault in 12 records of 15 partitions\n")
    assert "finding" not in printed(capsys, "verify", "--home", home), "nothing was found"
    assert "findings" in json.loads(printed(capsys, "verify", "--home", home, "-o", "json"))


def test_verify_exits_1_with_what_it_found(home: str, capsys: pytest.CaptureFixture[str]) -> None:
    with apsw.Connection(f"{home}/log.db") as connection:
        connection.execute("delete from events where subject = 'episode-b' and sequence = 1")
    connection.close()
    shown = printed(capsys, "verify", "--home", home, code=1)
    assert "offsets missing" in shown and "1 to offset" in shown and "3 faults" not in shown.split("\n")[0]
    found = json.loads(printed(capsys, "verify", "--home", home, "-o", "json", code=1))
    assert {(row["finding"], row["verdict"]) for row in found["findings"]} >= {
        ("offsets missing", "fault"), ("broken sequence", "fault")}
    assert any(row["episode"] == "episode-b" and row["topic"] == TRAJECTORIES for row in found["examples"])


def test_verify_of_a_file_that_is_none_exits_1(home: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(home, "log.db").write_bytes(b"garbage" * 10_000)
    assert main(["log", "verify", "--home", home]) == 1
    assert "error[log-damaged]" in capsys.readouterr().err
    Path(home, "log.db").write_bytes(b"")
    assert main(["log", "verify", "--home", home]) == 1
    assert "it was truncated" in capsys.readouterr().err


# -- tail -------------------------------------------------------------------------------------------------------------

def test_tail_shows_the_last_events_of_all_topics_in_order(home: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "tail", "--home", home, "-n", "5").splitlines()
    assert len(lines) == 5
    assert [line.split()[0] for line in lines] == sorted(line.split()[0] for line in lines)
    assert [line.split()[4] for line in lines] == ["tool.returned"] * 2 + ["episode.finished"] * 3
    assert len(printed(capsys, "tail", "--home", home).splitlines()) == 10
    assert printed(capsys, "tail", "--home", home, "-n", "0") == ""


def test_tail_selects(home: str, capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*arguments: str) -> list[tuple[str, int]]:
        return [(row["subject"], row["sequence"])
                for row in rows(printed(capsys, "tail", "--home", home, "-o", "jsonl", *arguments))]

    assert shown("--episode", "episode-b") == [("episode-b", number) for number in range(4)]
    assert len(shown("--from-start")) == 12 and len(shown("--from-start", "--limit", "3")) == 3
    assert {number for _, number in shown("--type", "turn.generated")} == {1}
    assert {number for _, number in shown("--since", "2023-11-14T22:13:22Z")} == {2, 3}
    assert shown("--since", "10m") == [] == shown("--topic", SCORES)
    assert len(shown("--topic", TRAJECTORIES, "--from-start")) == 12


@pytest.mark.parametrize(("arguments", "told"), [
    (["--type", "turn.generatd"], "did you mean `turn.generated`?"), (["--type", "zz"], "types: task.registered"),
    (["--type", "score.recorded"], "no such event\n"), (["--episode", "zz"], "no such event\n")])
def test_tail_of_what_is_not_there_says_so(home: str, arguments: list[str], told: str,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "tail", "--home", home, "-o", "json", *arguments]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) == [] and told in shown.err


def test_tail_decodes_token_buffers(home: str, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = rows(printed(capsys, "tail", "--home", home, "--episode", "episode-a", "--type", "turn.generated", "-o",
                          "jsonl"))
    assert row["data"] | {"context": [7, 8], "generated": [9], "logprobs": [-0.5], "text": ESCAPES} == row["data"]
    assert (row["type"], row["version"], row["time"], row["error"]) == (
        "turn.generated", 1, "2023-11-14T22:13:21.000Z", None)
    (line,) = printed(capsys, "tail", "--home", home, "--type", "turn.generated", "-n", "1").splitlines()
    assert "context=[2] generated=[1] logprobs=[1]" in line


def test_tail_in_every_format(home: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(json.loads(printed(capsys, "tail", "--home", home, "-o", "json"))) == 10
    found = list(csv.DictReader(io.StringIO(printed(capsys, "tail", "--home", home, "-o", "csv"))))
    assert len(found) == 10 and json.loads(found[-1]["data"])["termination"] == "completed"


def test_tail_shows_what_cannot_be_decoded(home: str, capsys: pytest.CaptureFixture[str]) -> None:
    log = open_log(Settings(home=home))
    turn = story("bad")[1]
    log.append(TRAJECTORIES, [turn._replace(data=b""), turn._replace(id="x", type="com.example.ping", data=b"\xc1"),
                              turn._replace(id="y", type="headrace.mood.noted.v1", data=b"\x81\xa1a\x01")]).result()
    log.close()
    with apsw.Connection(f"{home}/log.db") as connection:
        connection.execute("update events set source = '' where id = 'x'")
    connection.close()
    bad = rows(printed(capsys, "tail", "--home", home, "--from-start", "-o", "jsonl"))
    told = [(row["type"], row["data"], row["error"]) for row in bad if row["subject"] == "bad"]
    assert ("headrace.mood.noted", {"a": 1}) in [(f"headrace.{kind}", data) for kind, data, _ in told]
    assert (None, "wQ==", "source is empty") in told
    assert any(kind == "turn.generated" and "violates its schema" in (error or "") for kind, _, error in told)
    assert "! source is empty" in printed(capsys, "tail", "--home", home, "--from-start")


def test_nothing_that_an_agent_wrote_controls_the_terminal_or_makes_a_line(home: str) -> None:
    for style in ("table", "jsonl", "csv", "json"):
        shown = _on_a_terminal("log", "tail", "--home", home, "-o", style, "-n", "9")
        text = shown.decode().replace("\r\n", "\n")
        assert all(line.isprintable() for line in text.split("\n")), (style, shown)
        assert style != "table" or len(text.splitlines()) == 9


def _on_a_terminal(*arguments: str) -> bytes:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "headrace", *arguments]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=slave, cwd=REPOSITORY) as running:
        os.close(slave)
        shown = b""
        try:
            while data := os.read(master, 65536):
                shown += data
        except OSError:  # The terminal's other side is closed.
            pass
        assert running.wait(60) == 0
    os.close(master)
    return shown


@contextmanager
def following(home: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "headrace", "log", "tail", "--home", home, "--follow", *arguments]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY)
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def _append(home: str, events: list[Event]) -> None:
    log: EventLog = open_log(Settings(home=home))
    log.append(TRAJECTORIES, events).result()
    log.close()


@pytest.mark.parametrize("style", ["table", "jsonl", "csv"])
def test_follow_shows_events_as_they_come_until_ctrl_c(style: str, home: str) -> None:
    with following(home, "-o", style, "-n", "1", "--type", "episode.finished") as running:
        assert running.stdout is not None and running.stderr is not None
        if style == "csv":
            assert running.stdout.readline().startswith("topic,")
        assert "episode.finished" in running.stdout.readline()
        for name in ("new-1", "new-2"):
            _append(home, story(name))
            assert name in running.stdout.readline()
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == 130
        assert running.stderr.read() == "interrupted\n"


def test_a_pipe_that_is_closed_ends_it_without_a_trace(home: str) -> None:
    with following(home, "--from-start") as running:
        assert running.stdout is not None and running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        _append(home, story("new"))
        assert running.wait(30) == 0
        assert running.stderr.read() == ""


@pytest.mark.parametrize("arguments, expected", [
    (["tail", "--since", "yesterday"], "not a time: 'yesterday'"), (["tail", "--topic", "turns"], "'turns'"),
    (["tail", "-o", "json", "--follow"], "use `-o jsonl`"), (["tail", "-n", "-1"], "must not be negative"),
    (["create", "--partitions", "0"], "at least 1"), (["tail", "-n", "3", "--from-start"], "not allowed with"),
])
def test_mistakes_are_one_paragraph(arguments: list[str], expected: str, home: str,
                                    capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", *arguments, "--home", home]) == 2
    error = capsys.readouterr().err
    assert expected in error and "Traceback" not in error


# -- Kafka ------------------------------------------------------------------------------------------------------------

def test_all_of_it_on_kafka(kafka_settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    where = ["--home", kafka_settings.home, "--log", kafka_settings.log, "-o", "jsonl"]
    for action in ("describe", "verify", "tail"):
        assert main(["log", action, *where]) == 2
        assert "no log here" in capsys.readouterr().err
    made = rows(printed(capsys, "create", "--partitions", "2", "--retention-days", "30", *where))
    assert {row["state"] for row in made} == {"made"} and {row["retention"] for row in made} == {"30 days"}
    again = rows(printed(capsys, "create", *where))
    assert {(row["state"], row["retention"]) for row in again} == {("was there", "30 days")}
    log = open_log(kafka_settings)
    log.append(TRAJECTORIES, story("episode-a")).result()
    told = rows(printed(capsys, "describe", *where))
    about = {row["name"]: row["value"] for row in told if row["table"] == "log"}
    assert (about["backend"], about["identity"]) == ("kafka", log.identity)
    ends = {(row["topic"], row["partition"]): row["end"] for row in told if row["table"] == "partitions"}
    assert ends == log.ends(TOPICS) and sum(ends.values()) == 4
    assert sum(row["size_bytes"] for row in told if row["table"] == "partitions") > 0
    printed(capsys, "verify", *where)
    shown = rows(printed(capsys, "tail", "-n", "3", *where))
    assert [row["sequence"] for row in shown] == [1, 2, 3] and shown[0]["data"]["generated"] == [9]
    log.append(TRAJECTORIES, [story("episode-a")[1]._replace(id="torn", sequence=9, data=b"")]).result()
    found = rows(printed(capsys, "verify", *where, code=1))
    assert ("schema violation", "fault") in [(row["finding"], row.get("verdict")) for row in found if "finding" in row]
    log.close()
