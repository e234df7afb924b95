"""What the demo shows: a line that is redrawn on a terminal, plain lines otherwise."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

from schemas.events import StepCompleted

_PLAIN_EVERY_S = 10.0
_BAR_WIDTH = 24
_ERASE = "\x1b[K"
"""To the end of the line (ECMA-48, EL)."""


class Screen:
    def __init__(self, total_steps: int, file: TextIO | None = None) -> None:
        self._file = file or sys.stdout
        self._terminal = self._file.isatty()
        self._total = total_steps
        self._done = 0
        self._began = self._spoke = time.monotonic()
        self._drawn = False

    def line(self, text: str) -> None:
        """A line that stays."""
        self._clear()
        print(f"[{time.monotonic() - self._began:5.1f} s] {text}", file=self._file, flush=True)
        self._spoke = time.monotonic()

    stage = note = line

    def waiting(self, what: str, count: tuple[int, int] | None) -> None:
        counted = f" {count[0]} of {count[1]}" if count else ""
        if self._terminal:
            filled = _BAR_WIDTH * self._done // max(1, self._total)
            bar = "█" * filled + "░" * (_BAR_WIDTH - filled)
            text = f"{bar} {self._done}/{self._total} steps · {what}{counted}"
            print(f"\r{text[: shutil.get_terminal_size().columns - 1]}{_ERASE}", end="", file=self._file, flush=True)
            self._drawn = True
        elif time.monotonic() - self._spoke > _PLAIN_EVERY_S:
            self.line(f"waiting for {what}{counted}")

    def step(
        self, number: int, total: int, reward: float | None, completed: StepCompleted | None, duration_s: float
    ) -> None:
        self._done = number
        metrics = completed.metrics if completed else {}
        shown = " ".join(
            f"{name} {metrics[name]:.3g}" for name in ("loss", "entropy", "kl", "grad_norm") if name in metrics
        )
        self.line(f"step {number}/{total}: reward {_number(reward)} {shown} ({duration_s:.1f} s)")

    def held_out(self, version: int, reward: float | None) -> None:
        self.line(f"held-out reward of version {version}: {_number(reward)}")

    def _clear(self) -> None:
        if self._drawn:
            print(f"\r{_ERASE}", end="", file=self._file, flush=True)
            self._drawn = False


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"
