"""Long readers from the command line: ended by a signal as a service, interrupted where they were to become idle."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from consumers.sink import Sink
from consumers.verify import VerifyConsumer
from headrace.cli import main
from producers.producer import Producer


@pytest.mark.parametrize(("command", "service"), [
    ("produce", Producer), ("verify", VerifyConsumer), ("sink", Sink)])
def test_what_was_interrupted_before_it_was_idle_exits_130(
        command: str, service: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_: object, stop: threading.Event, until_idle: bool = False) -> None:
        signal.raise_signal(signal.SIGINT)
        assert stop.wait(60)

    arguments = [command, "--home", str(tmp_path / "home"), *(() if command == "sink" else ("--sandbox", "process"))]
    with monkeypatch.context() as patched:
        patched.setattr(service, "run", interrupted)
        assert main([*arguments, "--until-idle"]) == 130, "what follows `&&` must not run"
        assert "interrupted" in capsys.readouterr().err
        assert main(arguments) == 0
        assert "Ctrl-C ends it" in capsys.readouterr().err
    assert main([*arguments, "--until-idle"]) == 0
