"""`make ui`: Dagster's pages over the home's instance, on loopback."""

from __future__ import annotations

import os
import signal
import sys

from pipelines.instance import instance_folder
from schemas.settings import resolve


def main() -> None:
    """Becomes `dagster dev`. Further arguments are its own (`-p PORT`)."""
    settings = resolve().settings
    environment = {**os.environ, "DAGSTER_HOME": str(instance_folder(settings)),
                   "HEADRACE_HOME": os.path.abspath(settings.home)}
    command = [sys.executable, "-W", "ignore", "-m", "dagster", "dev", "-m", "pipelines.definitions", *sys.argv[1:]]
    # Started in the background of a script, it would inherit an ignored SIGINT and then not end on SIGTERM either.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execve(sys.executable, command, environment)


if __name__ == "__main__":
    main()
