"""Runs the learner again and again in a process of its own that dies at a named place: `killed.py POINT... -- ARGS`.

The libraries are loaded once; each run is a fork, killed by SIGKILL or ended by itself. Prints one exit status a line.
"""

from __future__ import annotations

import os
import sys

import training.checkpoint
import training.trainer  # noqa: F401
from schemas.failpoints import VARIABLE
from training.learner import main


def run(point: str, arguments: list[str]) -> int:
    pid = os.fork()
    if pid == 0:
        os.environ[VARIABLE] = point
        os._exit(main(arguments))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    cut = sys.argv.index("--")
    for point in sys.argv[1:cut]:
        print(run(point, sys.argv[cut + 1:]), flush=True)
