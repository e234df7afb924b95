"""How long do a producer, a verify consumer and a sink take to start where many episodes are over and few are open?

    python benchmarks/startup.py [--quick] [--seed S]

Each service runs until it is idle on the same log: with the lake, where it takes up what is open from the archive and
reads the tail, and without one, where it reads the log from its first offset. Each start is a fresh process.
"""

from __future__ import annotations

import sys
import threading
import time
from multiprocessing.connection import Connection

from harness import SPAWN, answer, interleaved, parser, ratio, scratch

from artifacts import open_store
from consumers.sink import Sink
from consumers.verify import VerifyConsumer
from eventlog import open_log
from lake import open_lake
from producers.producer import Producer
from sandboxes import open_backend
from schemas.codec import make_event
from schemas.envelope import Event
from schemas.events import ArtifactRef, EpisodeFinished, EpisodeStarted, Payload, SandboxInfo, ScoreRecorded
from schemas.ids import digest, new_id, now_us, stable_id
from schemas.settings import Settings
from schemas.topics import SCORES, TRAJECTORIES

SUBMISSION = ArtifactRef(digest(b"submission"), 1)
OPEN = 20
_CHUNK = 5000


def main() -> int:
    options = parser(__doc__).parse_args()
    episodes, rounds = (20_000, 3) if options.quick else (100_000, 3)
    held = []
    with scratch() as home:
        settings = Settings(home=home, sandbox_backend="process")
        fill(settings, episodes)
        for service in ("producer", "verify"):
            found = interleaved(rounds, {
                "lake": lambda service=service: start(settings, service, True),
                "log": lambda service=service: start(settings, service, False)})
            held.append(answer(f"start of a {service} beside {episodes} finished episodes, lake against log",
                               ratio(found["lake"], found["log"]), "x", "<= 0.5",
                               f"{min(found['lake']):.2f} s against {min(found['log']):.2f} s", rounds))
        held.append(answer(f"start of a sink beside {episodes} finished episodes",
                           min(start(settings, "sink", True) for _ in range(rounds)), "s", "<= 3", None, rounds))
    return 0 if all(held) else 1


def fill(settings: Settings, episodes: int) -> None:
    """Finished and scored episodes, and a few open ones, all in the lake."""
    log, store = open_log(settings), open_store(settings)
    names = [new_id() for _ in range(episodes)]
    for at in range(0, episodes, _CHUNK):
        some = names[at:at + _CHUNK]
        log.append(TRAJECTORIES, [event for name in some for event in _episode(name)])
        log.append(SCORES, [_event(name, 0, _score(name)) for name in some]).result()
    log.append(TRAJECTORIES, [event for _ in range(OPEN) for event in _episode(new_id())[:1]]).result()
    Sink(log, open_lake(settings, store), store, settings).run(threading.Event(), until_idle=True)
    log.close()


def _episode(name: str) -> list[Event]:
    started = EpisodeStarted(run_id="run", task_id="task", policy="tiny", sandbox=SandboxInfo(backend="process"),
                             at=now_us())
    return [_event(name, 0, started),
            _event(name, 1, EpisodeFinished(termination="completed", submission=SUBMISSION, at=now_us()))]


def _score(name: str) -> ScoreRecorded:
    return ScoreRecorded(score_id=stable_id("score", name), episode_id=name, submission=SUBMISSION.digest,
                         verifier="tools", verifier_digest=SUBMISSION.digest, status="ok", reward=1.0, cause="live",
                         started_at=now_us(), finished_at=now_us())


def _event(name: str, sequence: int, payload: Payload) -> Event:
    return make_event(payload, subject=name, source="producer-1", time_us=now_us(), sequence=sequence)


def start(settings: Settings, service: str, with_lake: bool) -> float:
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=_run, args=(settings, service, with_lake, theirs))
    process.start()
    seconds: float = ours.recv()
    process.join()
    return seconds


def _run(settings: Settings, service: str, with_lake: bool, told: Connection) -> None:
    log, store = open_log(settings), open_store(settings)
    lake = open_lake(settings, store)
    lake.positions()  # What is imported for it is not what is asked for.
    backend = open_backend(settings, store)
    began = time.perf_counter()
    if service == "producer":
        Producer(log, store, backend, settings, lake=lake if with_lake else None).run(threading.Event(), True)
    elif service == "verify":
        VerifyConsumer(log, _unasked, settings, lake=lake if with_lake else None).run(threading.Event(), True)
    else:
        Sink(log, lake, store, settings).run(threading.Event(), until_idle=True)
    told.send(time.perf_counter() - began)
    backend.close()
    log.close()


def _unasked(request: object) -> ScoreRecorded:
    raise AssertionError(f"everything is scored: {request}")


if __name__ == "__main__":
    sys.exit(main())
