"""What every benchmark shares: options, interleaved rounds, made-up turns, and the one line that answers a question.

A line is `{"question", "value", "unit", "target", "holds", "against", "rounds"}`. `target` is written as `>= 0.7`;
where there is none, or nothing could be measured (`value` null, `against` says why), `holds` is null.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from schemas.codec import make_event
from schemas.envelope import Event
from schemas.events import (
    EpisodeFinished,
    EpisodeStarted,
    Payload,
    SandboxInfo,
    ToolCalled,
    ToolReturned,
    TurnGenerated,
)
from schemas.ids import new_id, now_us

REPOSITORY = Path(__file__).resolve().parent.parent
SPAWN = multiprocessing.get_context("spawn")
_WORDS = ("the", "file", "test", "returns", "value", "should", "check", "because", "error", "line", "open", "result")


def parser(doc: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=(doc or "").strip().split("\n\n")[0])
    made.add_argument("--quick", action="store_true", help="smaller and fewer rounds: under a minute")
    made.add_argument("--seed", type=int, default=0, help="of all that is made up")
    return made


def answer(question: str, value: float | None, unit: str, target: str | None = None, against: str | None = None,
           rounds: int = 1, also: bool = True) -> bool:
    """Print the line. `also` is what must hold beside the target. True unless the target is missed."""
    holds = None if target is None or value is None else _holds(value, target) and also
    shown = value if value is None or isinstance(value, int) else float(f"{value:.4g}")
    print(json.dumps({"question": question, "value": shown, "unit": unit, "target": target, "holds": holds,
                      "against": against, "rounds": rounds}), flush=True)
    return holds is not False


def _holds(value: float, target: str) -> bool:
    relation, _, bound = target.partition(" ")
    return value >= float(bound) if relation == ">=" else value <= float(bound)


def interleaved(rounds: int, sides: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
    """What each side gives in each round: all sides meet the same machine, every second round in reverse order."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in sorted(sides, reverse=bool(number % 2)):
            found[name].append(sides[name]())
    return found


def ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """Median of the ratios of the rounds."""
    return statistics.median(one / other for one, other in zip(over, under, strict=True))


def timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def quantile(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


class Memory:
    """Watches the resident memory of this process, in MiB, from a thread."""

    def __init__(self, interval_s: float = 0.2) -> None:
        self.samples: list[float] = []
        self._interval_s, self._done = interval_s, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self.samples or not self._done.wait(self._interval_s):
            with open("/proc/self/statm", encoding="ascii") as file:
                self.samples.append(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20)

    def stop(self) -> list[float]:
        self._done.set()
        self._thread.join()
        return self.samples


def kafka_module() -> ModuleType:
    """`deploy/kafka/broker.py`, which is a script and not of a package."""
    if "kafka_broker" not in sys.modules:
        spec = importlib.util.spec_from_file_location("kafka_broker", REPOSITORY / "deploy" / "kafka" / "broker.py")
        assert spec is not None and spec.loader is not None
        sys.modules["kafka_broker"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules["kafka_broker"]


def scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="headrace-benchmark-")


class Story:
    """Episodes as producers would write them, from a seed. Texts are words, ids those of a vocabulary of 32,000."""

    def __init__(self, seed: int, context: int, generated: int, text: int, output: int = 0) -> None:
        self._random = random.Random(seed)
        self._context, self._generated, self._text, self._output = context, generated, text, output
        self.names: list[str] = []
        self._sequences: dict[str, int] = {}
        self._turns: dict[str, int] = {}

    def begin(self) -> Event:
        name = new_id()
        self.names.append(name)
        return self._event(name, EpisodeStarted(
            run_id="run", task_id=f"task-{len(self.names) % 50}", policy="tiny", at=now_us(), group_id="group",
            sandbox=SandboxInfo(backend="bubblewrap"), kind="tools"))

    def turn(self, name: str) -> Event:
        turn = self._turns[name] = self._turns.get(name, -1) + 1
        return self._event(name, self.turn_payload(turn))

    def call(self, name: str) -> Iterator[Event]:
        turn, call_id = self._turns[name], f"call-{self._turns[name]}"
        arguments = json.dumps({"command": self._words(self._output // 6)})
        yield self._event(name, ToolCalled(turn=turn, call_id=call_id, tool="shell", arguments=arguments, at=now_us()))
        output = self._words(self._output)
        yield self._event(name, ToolReturned(
            turn=turn, call_id=call_id, status="ok", exit_code=0, output=output, output_bytes=len(output),
            workspace="sha256:" + self._random.randbytes(32).hex(), duration_s=self._random.random(), at=now_us()))

    def finish(self, name: str) -> Event:
        turns = self._turns[name] + 1
        return self._event(name, EpisodeFinished(
            termination="completed", at=now_us(), turns=turns, tool_calls=turns, answer=self._words(40)))

    def turn_payload(self, turn: int) -> TurnGenerated:
        rng, at = self._random, now_us()
        return TurnGenerated(
            turn=turn, context=self._ids(self._context), generated=self._ids(self._generated),
            logprobs=array("f", (-rng.expovariate(1.5) for _ in range(self._generated))).tobytes(),
            versions=[(rng.randrange(20), self._generated)], prefix="sha256:" + rng.randbytes(32).hex(),
            text=self._words(self._text), finish_reason=rng.choice(("stop", "stop", "stop", "length")),
            sampler="temperature=1 top_p=1 top_k=0", started_at=at - 800_000, finished_at=at)

    def turns(self, count: int, episodes: int) -> list[Event]:
        """`count` events of `episodes` open at a time: starts first, then turns, interleaved."""
        events = [self.begin() for _ in range(min(episodes, count))]
        return events + [self.turn(self.names[number % len(events)]) for number in range(count - len(events))]

    def lives(self, episodes: int, turns: int, at_once: int) -> Iterator[Event]:
        """Whole episodes: turns with a tool call each, `at_once` of them interleaved."""
        for start in range(0, episodes, at_once):
            count = min(at_once, episodes - start)
            yield from [self.begin() for _ in range(count)]
            for _ in range(turns):
                for name in self.names[-count:]:
                    yield self.turn(name)
                    yield from self.call(name)
            yield from [self.finish(name) for name in self.names[-count:]]

    def _words(self, length: int) -> str:
        return " ".join(self._random.choices(_WORDS, k=length // 5 + 1))[:length]

    def _ids(self, count: int) -> bytes:
        return array("i", (int(32_000 ** self._random.random()) for _ in range(count))).tobytes()

    def _event(self, name: str, payload: Payload) -> Event:
        sequence = self._sequences.get(name, 0)
        self._sequences[name] = sequence + 1
        return make_event(payload, subject=name, source="producer-1", time_us=now_us(), sequence=sequence)


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    from importlib.metadata import version

    with open("/proc/meminfo", encoding="ascii") as file:
        memory_kb = int(file.readline().split()[1])
    packages = ("apsw", "deltalake", "duckdb", "kafka-python", "msgspec", "pyarrow")
    return {"cores": os.cpu_count(), "memory_gib": round(memory_kb / 2**20, 1), "python": sys.version.split()[0],
            "kernel": os.uname().release, **{name: version(name) for name in packages}}
