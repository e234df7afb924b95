"""The envelope: CloudEvents 1.0 over Kafka in binary mode, six headers, and errors that name the header."""

from __future__ import annotations

from typing import Any

import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary
from cloudevents.core.formats.base import Format
from hypothesis import given
from hypothesis import strategies as st

from schemas.envelope import Event, from_wire, split_type, to_headers, wire_type
from schemas.errors import SchemaError

EVENT = Event("0190b0a0-1111-7222-8333-444455556666", "producer-1", "headrace.turn.generated.v1", "episode-1", 7,
              1_700_000_000_000_001, b"\x80")
_NAMES = st.text(min_size=1, max_size=20)


@given(_NAMES, _NAMES, _NAMES, st.text(max_size=20), st.integers(0, 2**63 - 1), st.integers(0, 2**60),
       st.binary(max_size=30))
def test_an_event_comes_back_as_it_went(
        id: str, source: str, type: str, subject: str, sequence: int, time_us: int, data: bytes) -> None:
    event = Event(id, source, type, subject, sequence, time_us, data)
    assert from_wire(subject.encode(), data, to_headers(event), time_us) == event
    assert from_wire(subject.encode(), data, tuple(reversed(to_headers(event))), time_us) == event


def test_headers_are_exactly_these_six() -> None:
    assert to_headers(EVENT) == [
        ("ce_specversion", b"1.0"),
        ("ce_id", b"0190b0a0-1111-7222-8333-444455556666"),
        ("ce_source", b"producer-1"),
        ("ce_type", b"headrace.turn.generated.v1"),
        ("content-type", b"application/msgpack"),
        ("ce_sequence", b"000000000007"),
    ]


def test_sequence_headers_sort_as_text() -> None:
    headers = [dict(to_headers(EVENT._replace(sequence=sequence)))["ce_sequence"] for sequence in (0, 9, 10, 12_345)]
    assert headers == sorted(headers)


class _Bytes(Format):
    def read(self, event_factory: Any, data: str | bytes) -> Any:
        raise NotImplementedError("structured mode is not used")

    def write(self, event: object) -> bytes:
        raise NotImplementedError("structured mode is not used")

    def read_data(self, body: str | bytes, datacontenttype: str | None) -> str | bytes:
        return body

    def write_data(self, data: object, datacontenttype: str | None) -> bytes:
        raise NotImplementedError("nothing is written")

    def get_content_type(self) -> str:
        return "application/msgpack"


def test_the_cloudevents_package_reads_our_messages() -> None:
    message = KafkaMessage(headers=dict(to_headers(EVENT)), key=EVENT.subject.encode(), value=EVENT.data)
    parsed = from_binary(message, _Bytes())
    assert (parsed.get_id(), parsed.get_source(), parsed.get_type()) == (EVENT.id, EVENT.source, EVENT.type)
    assert (parsed.get_specversion(), parsed.get_datacontenttype()) == ("1.0", "application/msgpack")
    assert int(parsed.get_extension("sequence")) == EVENT.sequence
    assert parsed.get_data() == EVENT.data


@pytest.mark.parametrize(("wire", "name", "version"), [
    ("headrace.turn.generated.v1", "turn.generated", 1),
    ("headrace.turn.generated.v12", "turn.generated", 12),
    ("headrace.a.v1.v2", "a.v1", 2),
    ("com.example.ping", "com.example.ping", 0),
    ("turn.generated.v1", "turn.generated.v1", 0),
    ("headrace.turn.generated", "headrace.turn.generated", 0),
    ("headrace.turn.generated.v", "headrace.turn.generated.v", 0),
    ("headrace..v1", "headrace..v1", 0),
    ("headrace.x.v01", "headrace.x.v01", 0),
    ("headrace.x.v0", "headrace.x.v0", 0),
    ("headrace.x.v-1", "headrace.x.v-1", 0),
    ("headrace.x.v²", "headrace.x.v²", 0),
    ("headrace.x.v" + "9" * 5000, "headrace.x.v" + "9" * 5000, 0),
    ("", "", 0),
])
def test_a_type_splits_into_name_and_version(wire: str, name: str, version: int) -> None:
    assert split_type(wire) == (name, version)


@given(st.from_regex(r"[a-z]+(\.[a-z_]+)*", fullmatch=True), st.integers(1, 999_999))
def test_wire_type_and_split_type_are_inverse(name: str, version: int) -> None:
    assert split_type(wire_type(name, version)) == (name, version)
    event = EVENT._replace(type=wire_type(name, version))
    assert (event.name, event.version) == (name, version)


@given(st.text())
def test_any_foreign_type_is_carried(wire: str) -> None:
    assert split_type(wire) in ((wire, 0), (EVENT._replace(type=wire).name, EVENT._replace(type=wire).version))


@pytest.mark.parametrize(("name", "value", "says"), [
    ("ce_id", None, "header is missing at header ce_id"),
    ("ce_source", b"", "header is empty at header ce_source"),
    ("ce_type", None, "header is missing at header ce_type"),
    ("ce_specversion", None, "header is missing at header ce_specversion"),
    ("ce_specversion", b"0.3", "unknown CloudEvents version at header ce_specversion: b'0.3'"),
    ("ce_sequence", None, "header is missing at header ce_sequence"),
    ("ce_sequence", b"seven", "header is not a sequence number at header ce_sequence: 'seven'"),
    ("ce_sequence", b"-1", "header is not a sequence number at header ce_sequence: '-1'"),
    ("ce_sequence", b"1_0", "header is not a sequence number at header ce_sequence: '1_0'"),
    ("ce_sequence", b"9223372036854775808", "header is not a sequence number at header ce_sequence"),
    ("ce_sequence", "²".encode(), "header is not a sequence number at header ce_sequence"),
    ("ce_id", b"\xff", "not UTF-8 .* at header ce_id"),
])
def test_a_bad_header_is_named(name: str, value: bytes | None, says: str) -> None:
    headers = [(key, kept) for key, kept in to_headers(EVENT) if key != name]
    if value is not None:
        headers.append((name, value))
    with pytest.raises(SchemaError, match=says):
        from_wire(b"episode", b"", headers, 0)


def test_a_header_without_a_value_is_a_schema_error() -> None:
    """Kafka allows it."""
    with pytest.raises(SchemaError, match="header is empty at header ce_id"):
        from_wire(b"episode", b"", [*to_headers(EVENT), ("ce_id", None)], 0)  # type: ignore[list-item]


def test_a_key_that_is_not_text_is_a_schema_error() -> None:
    with pytest.raises(SchemaError, match=r"not UTF-8 .* at key"):
        from_wire(b"\xff", b"", to_headers(EVENT), 0)


def test_a_message_without_key_and_value_is_an_event() -> None:
    event = from_wire(None, None, to_headers(EVENT), 5)
    assert (event.subject, event.data, event.time_us) == ("", b"", 5)


@given(st.lists(st.tuples(st.text(max_size=12), st.binary(max_size=12)), max_size=6), st.binary(max_size=5))
def test_any_headers_give_an_event_or_a_schema_error(extra: list[tuple[str, bytes]], key: bytes) -> None:
    for headers in (extra, [*to_headers(EVENT), *extra]):
        try:
            assert from_wire(key, b"", headers, 0).id
        except SchemaError as wrong:
            assert wrong.where
