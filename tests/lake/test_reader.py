"""A file of a bucket read by several threads through one handle, as a SQL engine does."""

from __future__ import annotations

import random
import threading
import time

from artifacts.s3_streams import Reader

CONTENT = random.Random(0).randbytes(1 << 20)


def test_each_thread_reads_where_it_sought() -> None:
    def fetch(start: int, end: int) -> bytes:
        time.sleep(0.0005)  # A request: others have their turn.
        return CONTENT[start:end]

    reader, wrong = Reader(len(CONTENT), fetch), list[int]()

    def read(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(100):
            at, count = rng.randrange(len(CONTENT)), rng.choice((10, 5_000, 100_000))
            reader.seek(at)
            time.sleep(0)
            if reader.read(count) != CONTENT[at:at + count]:
                wrong.append(at)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
