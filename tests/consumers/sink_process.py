"""A sink in a process of its own, for tests that kill or pause it."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from artifacts import open_store
from consumers.sink import Sink
from eventlog import open_log
from eventlog.log import EventLog
from eventlog.sqlite import SqliteLog
from lake import open_lake
from schemas.settings import Settings


def main(home: str, log_setting: str, member: str, lease_s: str) -> None:
    """Drain the log, in flushes of about 20 rows."""
    settings = Settings(home=home, log=log_setting, sink_flush_rows=20, lake=os.environ.get("HEADRACE_LAKE", ""),
                        artifacts=os.environ.get("HEADRACE_ARTIFACTS", ""))
    log: EventLog
    if log_setting == "sqlite":
        log = SqliteLog(Path(home) / "log.db", settings.log_partitions, float(lease_s))
    else:
        log = open_log(settings)
    store = open_store(settings)
    Sink(log, open_lake(settings, store), store, settings, member=member).run(threading.Event(), until_idle=True)
    log.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
