"""The short form of `make chaos`: everything is killed and paused at random, and the lake holds what the log holds."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.chaos.chaos import chaos
from tests.conftest import require_real
from tests.eventlog.conftest import broker_module


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The audit reads every spoiled event once more, and each is told."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(("place", "kills"), [("sqlite", 12), ("kafka", 8), ("s3", 4)])
def test_random_kills_and_pauses_lose_and_double_nothing(place: str, kills: int) -> None:
    if place == "kafka" and (why := broker_module().missing()):
        require_real("Apache Kafka", why)
    found = chaos(place, seed=7, kills=kills)
    assert found["problems"] == []
    assert found["kills"] + found.get("failpoints", 0) + found.get("pauses", 0) >= kills
    assert found["events"] > 100
    assert found["fenced"] and found["finished"] and found["scores"]
