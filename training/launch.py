"""Starting the learner: one torchrun agent and its workers, which die with it.

    python -m training.launch TORCHRUN_ARGUMENTS

is torchrun with a plain end: a signal or a failed worker gives an exit code, not a page of its own stack. The
worker has said what was wrong.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from schemas.lifeline import die_with_parent
from schemas.settings import Settings

_MODULE = "training.launch"


def learner_command(settings: Settings, run_id: str, base: Path, *, steps: int | None = None) -> list[str]:
    """The command line of a run's learner; it ends by itself after `steps`, else it waits for further batches.

    Settings that are not named here reach the workers through the environment.
    """
    command = [
        sys.executable, "-m", _MODULE, "--nnodes", "1", "--nproc-per-node", str(settings.learner_processes),
        "--master-addr", "127.0.0.1", "--master-port", str(_free_port()), "--max-restarts", "0",
        # After `--`, torchrun does not take our flags for abbreviations of its own.
        "-m", "--", "training.learner",
        "--home", settings.home, "--log", settings.log, "--log-partitions", str(settings.log_partitions),
        "--artifacts", settings.artifacts, "--run", run_id, "--base", str(base)]
    return command if steps is None else [*command, "--steps", str(steps)]


def die_with_launcher() -> None:
    """Called first thing in a worker: torchrun gives it a session of its own, so it must follow its agent itself."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        die_with_parent(lambda pid: _MODULE.encode() in _command_line(pid))


def main(arguments: Sequence[str]) -> int:
    """Run torchrun in this process; the exit code of the worker that failed, or 128 and the signal that ended us."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    try:
        run.main(list(arguments))
    except SignalException as ended:
        return 128 + int(ended.sigval)
    except ChildFailedError as failed:
        _, failure = failed.get_first_failure()
        if failure.exitcode < 0:
            print(f"learner process {failure.pid} was killed by signal {-failure.exitcode}", file=sys.stderr)
            return 128 - failure.exitcode
        return int(failure.exitcode)
    return 0


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
