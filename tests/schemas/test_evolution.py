"""Both directions of a change: new readers of old bytes, old readers of new bytes; through a real log, sink and lake.

A reader of version N-1 is this release without the decoder of version N.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from artifacts.store import DirectoryStore
from consumers.sink import Sink
from eventlog import open_log
from lake import open_lake
from schemas import codec
from schemas.codec import decode_payload, make_event
from schemas.envelope import Event, wire_type
from schemas.errors import SchemaError
from schemas.events import DeadLettered
from schemas.settings import Settings
from schemas.superseded import DeadLetteredV1
from schemas.topics import DEAD_LETTERS, TRAJECTORIES
from tests.golden.examples import AT, CURRENT, SUPERSEDED
from tests.golden.regenerate import path_of

Sunk = Callable[..., dict[str, list[dict[str, Any]]]]
OLD, READ_AS = next((old, new) for old, new in SUPERSEDED if isinstance(old, DeadLetteredV1))
NEW = next(payload for payload in CURRENT if isinstance(payload, DeadLettered))
_POSITION = 'partition, "offset"'
_DECLARED: dict[str, Any] = {payload.NAME: payload for payload in CURRENT}


@pytest.fixture
def sunk(settings: Settings, artifacts: DirectoryStore) -> Sunk:
    """Appends events, runs the sink to the end, and gives the rows of `events`, `turns`, ... by table."""

    def run(topic: str, *events: Event) -> dict[str, list[dict[str, Any]]]:
        log, lake = open_log(settings), open_lake(settings, artifacts)
        log.append(topic, events).result()
        Sink(log, lake, artifacts, settings).run(threading.Event(), until_idle=True)
        log.close()
        by_position = ("events", "dead_letters")
        return {name: lake.sql(f"select * from {name} order by {'all' if name not in by_position else _POSITION}")
                .to_pylist() for name in ("events", "episodes", "turns", "tool_calls", "dead_letters")}

    return run


@pytest.fixture
def old_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The release that knew version 1 of a dead letter alone."""
    monkeypatch.delitem(codec._DECODERS, ("record.dead_lettered", 2))


def _event(name: str, sequence: int = 0, *, version: int = 1, source: str = "writer", **extra: object) -> Event:
    """An event of a known type as a writer of `version` with more fields would write it."""
    fields = msgspec.to_builtins(_DECLARED[name], builtin_types=(bytes,)) | extra
    return Event(f"{name}-{sequence}", source, wire_type(name, version), "episode", sequence, AT,
                 msgspec.msgpack.encode(fields))


def test_new_reader_reads_bytes_of_version_1(sunk: Sunk) -> None:
    event = Event("old", "writer", wire_type("record.dead_lettered"), "x", 0, AT, path_of(OLD).read_bytes())
    assert decode_payload(event) == READ_AS
    tables = sunk(DEAD_LETTERS, event)
    assert [(row["type"], row["version"], row["data"]) for row in tables["events"]] == [
        ("record.dead_lettered", 1, event.data)]
    (letter,) = tables["dead_letters"]
    assert letter["data"] == OLD.data and OLD.reason in letter["reason"]


def test_both_versions_stand_side_by_side_and_are_read_alike(sunk: Sunk) -> None:
    old = Event("old", "writer", wire_type("record.dead_lettered"), "x", 0, AT, path_of(OLD).read_bytes())
    new = make_event(NEW, subject="x", source="writer", time_us=AT)
    assert new.type == "headrace.record.dead_lettered.v2"
    tables = sunk(DEAD_LETTERS, old, new)
    assert [row["version"] for row in tables["events"]] == [1, 2]
    assert len({(row["reason"], row["data"]) for row in tables["dead_letters"]}) == 1
    assert len(tables["dead_letters"]) == 2


def test_bytes_of_version_1_that_violate_it_say_so() -> None:
    event = Event("old", "writer", wire_type("record.dead_lettered"), "x", 0, AT,
                  msgspec.msgpack.encode({"topic": "scores", "partition": "two"}))
    with pytest.raises(SchemaError, match=r"payload of headrace\.record\.dead_lettered\.v1 .*\$\.partition"):
        decode_payload(event)


def test_old_reader_carries_version_2(old_reader: None, sunk: Sunk) -> None:
    old = Event("old", "writer", wire_type("record.dead_lettered"), "x", 0, AT, path_of(OLD).read_bytes())
    new = Event("new", "writer", wire_type("record.dead_lettered", 2), "x", 0, AT, path_of(NEW).read_bytes())
    assert decode_payload(old) is not None and decode_payload(new) is None
    tables = sunk(DEAD_LETTERS, new, old)
    assert [(row["id"], row["version"], row["admitted"], row["data"]) for row in tables["events"]] == [
        ("new", 2, True, new.data), ("old", 1, True, old.data)]
    assert [row["offset"] for row in tables["dead_letters"]] == [1], "what is unknown is carried, not dead-lettered"


def test_what_an_old_reader_carried_is_read_after_the_upgrade(sunk: Sunk, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as old_release:
        old_release.delitem(codec._DECODERS, ("record.dead_lettered", 2))
        tables = sunk(DEAD_LETTERS, make_event(NEW, subject="x", source="writer", time_us=AT))
    (row,) = tables["events"]
    again = Event(row["id"], row["source"], wire_type(row["type"], row["version"]), row["subject"], 0, AT, row["data"])
    assert decode_payload(again) == NEW


def test_episode_of_a_newer_writer_goes_on_for_an_old_reader(sunk: Sunk) -> None:
    """A newer claim, turn and finish, an unknown type and unknown fields: all admitted, kept, none a dead letter."""
    mood = Event("mood", "writer", "headrace.mood.noted.v1", "episode", 3, AT, b"\xc1 not even msgpack")
    events = [
        _event("episode.started", 0, mood="calm"), _event("turn.generated", 1, mood={"deep": [1]}),
        _event("turn.generated", 2, version=9), mood, _event("tool.called", 4), _event("tool.returned", 5, colour=7),
        _event("episode.resumed", 6, version=2, source="second", soul=1),
        _event("tool.called", 7, source="writer"), _event("episode.finished", 7, source="second"),
        _event("turn.generated", 8, source="second")]
    tables = sunk(TRAJECTORIES, *events)
    assert [(row["id"], row["admitted"], row["reason"]) for row in tables["events"]] == [
        *((event.id, True, "") for event in events[:7]), ("tool.called-7", False, "not_owner"),
        ("episode.finished-7", True, ""), ("turn.generated-8", False, "after_finish")]
    assert [row["data"] for row in tables["events"]] == [event.data for event in events]
    assert tables["dead_letters"] == []
    assert [row["turn"] for row in tables["turns"]] == [1] and len(tables["tool_calls"]) == 1
    assert len(tables["episodes"]) == 1


def test_finish_of_an_unknown_version_ends_the_episode(sunk: Sunk) -> None:
    tables = sunk(TRAJECTORIES, _event("episode.started", 0), _event("episode.finished", 1, version=2),
                  _event("turn.generated", 2))
    assert [row["reason"] for row in tables["events"]] == ["", "", "after_finish"]
    assert tables["dead_letters"] == [] == tables["turns"]


def test_writers_write_the_newest_version_alone() -> None:
    with pytest.raises(KeyError):
        make_event(OLD, subject="x", source="writer", time_us=AT)
    versions = {payload.NAME: payload.VERSION for payload in CURRENT}
    assert all(versions[old.NAME] > old.VERSION for old, _ in SUPERSEDED)
