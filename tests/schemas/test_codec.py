"""Payloads: unknown is carried, missing takes its default, and what violates the schema says where."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import decode_payload, finite_or_none, make_event, readable_payload
from schemas.envelope import Event, wire_type
from schemas.errors import SchemaError
from schemas.events import PAYLOADS, CancelRequested, Payload, TurnGenerated, WeightsPublished, fields_of
from schemas.topics import TOPICS
from tests.golden.examples import CURRENT

CANCEL = wire_type("episode.cancel_requested")
TURN = next(payload for payload in CURRENT if isinstance(payload, TurnGenerated))


def _event(data: object, type: str = CANCEL) -> Event:
    encoded = data if isinstance(data, bytes) else msgspec.msgpack.encode(data)
    return Event("event-9", "source", type, "subject", 0, 0, encoded)


@pytest.mark.parametrize("payload", CURRENT, ids=lambda payload: payload.NAME)
def test_a_payload_comes_back(payload: Payload) -> None:
    event = make_event(payload, subject="episode", source="writer", time_us=5, sequence=3, event_id="once")
    assert (event.id, event.subject, event.source, event.time_us, event.sequence) == ("once", "episode", "writer", 5, 3)
    assert (event.name, event.version) == (payload.NAME, payload.VERSION)
    assert decode_payload(event) == payload


def test_an_event_without_a_given_id_gets_its_own() -> None:
    one, two = (make_event(CURRENT[0], subject="a", source="b", time_us=0) for _ in range(2))
    assert one.id != two.id


@pytest.mark.parametrize("type", ["headrace.mood.noted.v1", "headrace.turn.generated.v9", "com.example.ping", ""])
def test_an_unknown_type_is_carried(type: str) -> None:
    assert decode_payload(_event(b"\xc1 not even msgpack", type)) is None


def test_an_unknown_field_is_ignored() -> None:
    assert decode_payload(_event({"episode_id": "e", "mood": {"deep": [1, 2]}})) == CancelRequested(episode_id="e")


@pytest.mark.parametrize("payload", CURRENT, ids=lambda payload: payload.NAME)
def test_a_missing_field_takes_its_default(payload: Payload) -> None:
    """An old writer did not know the field."""
    event = make_event(payload, subject="s", source="w", time_us=0)
    values = msgspec.msgpack.decode(event.data)
    for field in msgspec.structs.fields(type(payload)):
        kept = {key: value for key, value in values.items() if key != field.name}
        old = event._replace(data=msgspec.msgpack.encode(kept))
        if field.required:
            with pytest.raises(SchemaError, match=f"missing required field `{field.name}`"):
                decode_payload(old)
        elif (payload.NAME, field.name) not in {("turn.generated", "media")}:
            read = decode_payload(old)
            assert read is not None
            default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
            assert getattr(read, field.name) == default


@pytest.mark.parametrize(("data", "says"), [
    ({"reason": "x"}, r"missing required field `episode_id`"),
    ({"episode_id": 5}, r"Expected `str`, got `int` - at `\$\.episode_id`"),
    ({"episode_id": "e", "at": "soon"}, r"Expected `int`, got `str` - at `\$\.at`"),
    ({"episode_id": "e", "at": 2**63}, r"Expected `int` <= 9223372036854775807 - at `\$\.at`"),
    (b"", "truncated"),
    (b"\x81\xaaepisode_id", "truncated"),
    (b"\x81\xaaepisode_id\xa1x\x00", "trailing characters"),
    (b"\x81\xaaepisode_id\xa1\xff", "UTF-8"),
    (b"\x82\xaaepisode_id\xa1x\xa4mood" + b"\x91" * 100_000 + b"\xc0", "recursion depth"),
    ([1], "Expected `object`, got `array`"),
])
def test_a_violation_names_the_field_and_the_event(data: object, says: str) -> None:
    with pytest.raises(SchemaError, match=says) as caught:
        decode_payload(_event(data))
    assert caught.value.where == "event event-9"
    assert caught.value.what.startswith("payload of headrace.episode.cancel_requested.v1 violates its schema: ")
    assert caught.value.code == "schema"


def test_readers_of_facts_pass_over_what_violates_its_schema() -> None:
    assert readable_payload(_event({"episode_id": 7})) is None
    assert readable_payload(_event({"episode_id": "e"})) == CancelRequested(episode_id="e")


def test_a_nested_field_has_its_whole_path() -> None:
    values: dict[str, Any] = msgspec.msgpack.decode(make_event(TURN, subject="s", source="w", time_us=0).data)
    values["versions"] = [[1, 2], [1, "two"]]
    with pytest.raises(SchemaError, match=r"at `\$\.versions\[1\]\[1\]` at event event-9"):
        decode_payload(_event(values, wire_type("turn.generated")))


@pytest.mark.parametrize(("change", "says"), [
    ({"context": b"\0" * 5}, r"whole number of int32 at \$\.context"),
    ({"generated": b"\0" * 7, "logprobs": None}, r"whole number of int32 at \$\.generated"),
    ({"logprobs": b"\0" * 4}, r"one float32 is needed for each generated id at \$\.logprobs: \(1, 2\)"),
    ({"versions": [(4, 1)]}, r"count every generated id once at \$\.versions: \[\(4, 1\)\]"),
    ({"versions": [(4, 3), (5, -1)]}, r"count every generated id once at \$\.versions"),
])
def test_buffers_that_do_not_fit_each_other_are_refused(change: dict[str, Any], says: str) -> None:
    turn = msgspec.structs.replace(TURN, **change)
    with pytest.raises(SchemaError, match=says):
        decode_payload(make_event(turn, subject="s", source="w", time_us=0, event_id="event-9"))


def test_a_turn_that_was_not_sampled_has_neither_logprobs_nor_versions() -> None:
    turn = msgspec.structs.replace(TURN, logprobs=None, versions=[])
    assert decode_payload(make_event(turn, subject="s", source="w", time_us=0)) == turn


@given(st.sampled_from([wire_type(payload.NAME) for payload in PAYLOADS]), st.binary(max_size=60))
def test_any_bytes_give_a_payload_or_a_schema_error(type: str, data: bytes) -> None:
    try:
        decode_payload(_event(data, type))
    except SchemaError as wrong:
        assert wrong.where == "event event-9"


@given(st.sampled_from(CURRENT), st.integers(0, 400), st.integers(0, 255))
def test_a_flipped_byte_gives_a_payload_or_a_schema_error(payload: Payload, at: int, byte: int) -> None:
    event = make_event(payload, subject="s", source="w", time_us=0)
    torn = bytearray(event.data)
    torn[at % len(torn)] = byte
    try:
        decode_payload(event._replace(data=bytes(torn)))
    except SchemaError as wrong:
        assert event.id in wrong.where


def test_every_type_lives_in_a_topic_and_lists_its_fields() -> None:
    assert {payload.TOPIC for payload in PAYLOADS} == set(TOPICS)
    assert len({payload.NAME for payload in PAYLOADS}) == len(PAYLOADS)
    assert fields_of(WeightsPublished) == [
        ("run_id", str), ("version", int), ("digest", str), ("path", str), ("step", int | None), ("at", int)]


def test_only_finite_numbers_are_kept() -> None:
    assert [finite_or_none(value) for value in (None, 0.0, 1.5, float("nan"), float("inf"), -float("inf"))] == [
        None, 0.0, 1.5, None, None, None]
