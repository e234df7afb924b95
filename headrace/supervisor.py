"""Child processes of a run: started together, restarted when they die, stopped together, never orphaned."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.lifeline import child_environment
from schemas.errors import HeadraceError
from schemas.settings import Settings

_MAX_RESTARTS = 5
_STOP_GRACE_S = 10.0
_THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


class ServiceError(HeadraceError):
    """A service died again and again."""

    code = "service"


def settings_environment(settings: Settings) -> dict[str, str]:
    """The settings as variables, so that children resolve to the same ones whatever file lies around."""
    import msgspec

    values = msgspec.structs.asdict(settings)
    return {f"HEADRACE_{key.upper()}": str(value) for key, value in values.items()}


class Child:
    """One `headrace COMMAND` process. Its output goes to `home/logs/NAME.log`."""

    def __init__(
        self, name: str, arguments: Sequence[str], settings: Settings, extra: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.restarts = 0
        self._command = [sys.executable, "-m", "headrace", *arguments]
        self._environment = {**settings_environment(settings), **_THREADS, **(extra or {})}
        self.log = Path(settings.home) / "logs" / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=child_environment(self._environment),
            )

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def watch(self) -> bool:
        """Restart the process if it died; True if it had to be. Raises ServiceError when it keeps dying."""
        if self._process is None or self._process.poll() is None:
            return False
        if self.restarts >= _MAX_RESTARTS:
            raise ServiceError(
                f"{self.name} died {self.restarts + 1} times, last with code {self._process.returncode}",
                where=str(self.log),
                hint=f"its last words: {_tail(self.log)}",
            )
        self.restarts += 1
        self.start()
        return True

    def ask_to_stop(self) -> None:
        if self._process and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait_or_kill(self, deadline: float) -> None:
        if self._process is None:
            return
        try:
            self._process.wait(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Supervisor:
    """All children of one run. Use as a context manager."""

    def __init__(self) -> None:
        self.children: list[Child] = []

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, child: Child) -> None:
        self.children.append(child)
        child.start()

    def watch(self) -> list[str]:
        """Names of the children that had died and were restarted just now."""
        return [child.name for child in self.children if child.watch()]

    def stop(self) -> None:
        for child in self.children:
            child.ask_to_stop()
        deadline = time.monotonic() + _STOP_GRACE_S
        for child in self.children:
            child.wait_or_kill(deadline)
        self.children = []


def _tail(path: Path, lines: int = 3) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 2000))
            return " | ".join(file.read().decode(errors="replace").splitlines()[-lines:])
    except OSError:
        return "(no log)"
