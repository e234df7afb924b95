"""Bytes that were written once are read for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.codec import decode_payload, make_event
from schemas.envelope import Event, wire_type
from schemas.events import PAYLOADS, Payload
from tests.golden.examples import V1
from tests.golden.regenerate import FOLDER, path_of, write_missing

BY_NAME = {payload.NAME: payload for payload in V1}


def _bytes(payload: Payload) -> bytes:
    return path_of(payload).read_bytes()


def _event(payload: Payload, data: bytes) -> Event:
    return Event("id", "source", wire_type(payload.NAME, payload.VERSION), "subject", 0, 0, data)


def _map(data: bytes) -> dict[str, Any]:
    return msgspec.msgpack.decode(data)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", BY_NAME)
def test_golden_bytes_are_read_as_the_values_they_were_made_from(name: str) -> None:
    payload = BY_NAME[name]
    assert decode_payload(_event(payload, _bytes(payload))) == payload


@pytest.mark.parametrize("name", BY_NAME)
def test_what_was_read_is_written_the_same(name: str) -> None:
    """Fields that a later release added may follow, at their defaults; the old ones keep name, value and order."""
    payload, golden = BY_NAME[name], _bytes(BY_NAME[name])
    read = decode_payload(_event(payload, golden))
    assert read is not None
    again = make_event(read, subject="subject", source="source", time_us=0).data
    old, new = _map(golden), _map(again)
    assert {key: new[key] for key in old} == old
    if new.keys() == old.keys():
        assert again == golden


def test_every_type_has_golden_bytes() -> None:
    assert [type(payload) for payload in V1] == list(PAYLOADS)
    assert sorted(path.name for path in FOLDER.glob("*.msgpack")) == sorted(path_of(payload).name for payload in V1)


@pytest.mark.parametrize("name", BY_NAME)
def test_golden_bytes_hold_every_field_and_no_default(name: str) -> None:
    """Else a field that lost its default, or its name, could pass."""
    payload, values = BY_NAME[name], _map(_bytes(BY_NAME[name]))
    for field in msgspec.structs.fields(type(payload)):
        if field.encode_name in values:
            assert values[field.encode_name] != field.default, field.name
        else:
            assert not field.required, f"{field.name} was added without a default"


def test_existing_golden_files_are_never_overwritten(tmp_path: Path) -> None:
    first = path_of(V1[0], tmp_path)
    first.write_bytes(b"old")
    written = write_missing(tmp_path)
    assert first.read_bytes() == b"old"
    assert len(written) == len(V1) - 1
    assert write_missing(tmp_path) == []
