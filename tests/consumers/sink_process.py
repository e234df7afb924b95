"""A sink in a process of its own, for tests that kill or pause it: `python -m tests.consumers.sink_process HOME`."""

from __future__ import annotations

import sys
import threading

from artifacts import open_store
from consumers.sink import Sink
from eventlog import open_log
from lake import open_lake
from schemas.settings import Settings


def main(home: str, member: str = "sink", until_idle: str = "idle", rows: str = "7") -> None:
    settings = Settings(home=home, sink_flush_rows=int(rows))
    log, store = open_log(settings), open_store(settings)
    sink = Sink(log, open_lake(settings, store), store, settings, member=member)
    sink.run(threading.Event(), until_idle=until_idle == "idle")
    log.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
