"""What a process that judges writes to stderr: its last part is kept, and a bounded part of it passed on to ours."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading

KEPT = 4000
_CLOSE_S = 5.0
PASSED_ON = 64 << 10
"""Bytes of one verdict."""


class Tail:
    """Reads in a thread of its own, so the process never waits for us."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        self._pipe, self._text, self._room = process.stderr, b"", PASSED_ON
        self._thread = threading.Thread(target=self._read, name="judge-stderr", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """The next verdict."""
        self._room = PASSED_ON

    def _read(self) -> None:
        while part := os.read(self._pipe.fileno(), 65536):
            self._text = (self._text + part)[-KEPT:]
            if self._room <= 0:
                continue
            shown = part[:self._room].decode(errors="backslashreplace")
            self._room -= len(part)
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(shown if self._room > 0 else f"{shown}\n... what this verdict writes is left out\n")

    def text(self) -> str:
        return self._text.decode(errors="backslashreplace")

    def last_line(self) -> str:
        lines = self.text().strip().splitlines()
        return lines[-1] if lines else ""

    def close(self) -> None:
        self._thread.join(_CLOSE_S)
        if not self._thread.is_alive():  # Else somebody holds the other end who could not be found.
            self._pipe.close()
