"""How many episodes a second does one producer finish? Tool tasks, real sandboxes, real log, 128 side by side.

    python benchmarks/production.py [--quick] [--seed S] [--model DIR] [--sandbox bubblewrap]

The tiny policy against the scripted reference, which shows what sampling itself costs; rounds are interleaved.
"""

from __future__ import annotations

import statistics
import sys
import threading
from pathlib import Path

from harness import answer, parser, scratch, timed

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
TARGET = ">= 40"
"""Episodes a second on two cores: a demo step of 128 takes about three seconds."""


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--model", type=Path, default=TINY_BASE)
    options.add_argument("--sandbox", default="bubblewrap")
    chosen = options.parse_args()
    rounds = 1 if chosen.quick else 5
    with scratch() as home:
        rates = measure(Settings(home=home, sandbox_backend=chosen.sandbox, producer_concurrency=CONCURRENCY),
                        ["scripted:reference", f"transformers:{chosen.model}"], rounds, chosen.seed)
    scripted, sampled = (statistics.median(rates[name]) for name in rates)
    return 0 if answer("episodes a second of one producer, tiny policy, concurrency 128", sampled, "1/s", TARGET,
                       f"scripted: {scripted:.1f}/s", rounds) else 1


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


if __name__ == "__main__":
    sys.exit(main())
