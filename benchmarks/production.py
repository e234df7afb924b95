"""How many episodes a second does one producer finish? Tool tasks, real sandboxes, real log, 128 side by side.

    python benchmarks/production.py [--quick] [--seed S] [--model DIR] [--sandbox bubblewrap]

The tiny policy against the scripted reference, which shows what sampling itself costs; rounds are interleaved.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from artifacts import open_store
from eventlog import open_log
from producers.policies import TINY_BASE
from producers.producer import Producer
from producers.request import register_tasks, request_episodes
from sandboxes import open_backend
from schemas.events import Sampling
from schemas.settings import Settings
from tasks.tools import training_tasks

CONCURRENCY = 128
TARGET = 40.0
"""Episodes a second on two cores: a demo step of 128 takes about three seconds."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", type=Path, default=TINY_BASE)
    parser.add_argument("--sandbox", default="bubblewrap")
    options = parser.parse_args()
    rounds = 1 if options.quick else 5
    with tempfile.TemporaryDirectory(prefix="headrace-benchmark-") as home:
        rates = measure(Settings(home=home, sandbox_backend=options.sandbox, producer_concurrency=CONCURRENCY),
                        ["scripted:reference", f"transformers:{options.model}"], rounds, options.seed)
    scripted, sampled = (statistics.median(rates[name]) for name in rates)
    print(json.dumps({
        "question": "episodes a second of one producer, tiny policy, concurrency 128", "value": round(sampled, 1),
        "unit": "1/s", "target": TARGET, "holds": sampled >= TARGET, "against": {"scripted": round(scripted, 1)},
        "rounds": rounds}))


def measure(settings: Settings, policies: list[str], rounds: int, seed: int) -> dict[str, list[float]]:
    artifacts, log = open_store(settings), open_log(settings)
    backend = open_backend(settings, artifacts)
    registered = register_tasks(log, artifacts, training_tasks(seed, 0, 16))
    producer = Producer(log, artifacts, backend, settings)

    def one_round(policy: str, number: int) -> float:
        request_episodes(log, registered, run_id="benchmark", policy=policy, samples=8, group_key=f"{policy}/{number}",
                         sampling=Sampling(max_tokens=20, seed=number))
        return 8 * len(registered) / timed(lambda: producer.run(threading.Event(), until_idle=True))

    try:
        for policy in policies:
            one_round(policy, -1)
        rates: dict[str, list[float]] = {policy: [] for policy in policies}
        for number in range(rounds):
            for policy in policies:
                rates[policy].append(one_round(policy, number))
        return rates
    finally:
        backend.close()
        log.close()


def timed(function: Callable[[], None]) -> float:
    started = time.monotonic()
    function()
    return time.monotonic() - started


if __name__ == "__main__":
    main()
