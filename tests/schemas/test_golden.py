"""Bytes that were written once are read for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.codec import decode_payload, make_event
from schemas.envelope import Event, wire_type
from schemas.events import PAYLOADS, Int64, Payload
from schemas.superseded import SUPERSEDED, UPCASTERS
from tests.golden import examples
from tests.golden.regenerate import FOLDER, add_shapes, kept_shapes, path_of, write_missing
from tests.golden.shapes import breaks, shapes_of

READ_AS = {path_of(payload).name.removesuffix(".msgpack"): (payload, payload) for payload in examples.CURRENT} | {
    path_of(old).name.removesuffix(".msgpack"): (old, new) for old, new in examples.SUPERSEDED}


def _bytes(payload: Payload) -> bytes:
    return path_of(payload).read_bytes()


def _event(payload: Payload, data: bytes) -> Event:
    return Event("id", "source", wire_type(payload.NAME, payload.VERSION), "subject", 0, 0, data)


def _map(data: bytes) -> dict[str, Any]:
    return msgspec.msgpack.decode(data)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", READ_AS)
def test_golden_bytes_are_read_as_the_values_they_were_made_from(name: str) -> None:
    written, read_as = READ_AS[name]
    assert decode_payload(_event(written, _bytes(written))) == read_as


def _without_added(new: Any, old: Any) -> Any:
    """`new` without the names that `old` has not, in maps within maps too."""
    if not isinstance(new, dict) or not isinstance(old, dict):
        return new
    return {key: _without_added(new[key], value) for key, value in old.items()}


@pytest.mark.parametrize("payload", examples.CURRENT, ids=lambda payload: payload.NAME)
def test_what_was_read_is_written_the_same(payload: Payload) -> None:
    """Fields that a later release added may follow, at their defaults; the old ones keep name, value and order."""
    golden = _bytes(payload)
    read = decode_payload(_event(payload, golden))
    assert read is not None
    again = make_event(read, subject="subject", source="source", time_us=0).data
    old, new = _map(golden), _map(again)
    assert _without_added(new, old) == old
    if new == old:
        assert again == golden


def test_every_type_and_version_has_golden_bytes() -> None:
    assert [type(payload) for payload in examples.CURRENT] == list(PAYLOADS)
    assert [type(old) for old, _ in examples.SUPERSEDED] == list(SUPERSEDED)
    assert sorted(path.stem for path in FOLDER.glob("*.msgpack")) == sorted(READ_AS)


@pytest.mark.parametrize("name", READ_AS)
def test_golden_bytes_hold_every_field_and_no_default(name: str) -> None:
    """Else a field that lost its default, or its name, could pass."""
    payload, _ = READ_AS[name]
    values = _map(_bytes(payload))
    for field in msgspec.structs.fields(type(payload)):
        if field.encode_name in values:
            assert values[field.encode_name] != field.default, field.name
        else:
            assert not field.required, f"{field.name} was added without a default"


def test_versions_of_a_type_are_a_chain_to_the_one_that_is_written() -> None:
    newest = {payload.NAME: payload for payload in PAYLOADS}
    for old, upcast in UPCASTERS.items():
        example = next(payload for payload, _ in examples.SUPERSEDED if type(payload) is old)
        after = type(upcast(example))
        assert (after.NAME, after.VERSION, after.TOPIC) == (old.NAME, old.VERSION + 1, old.TOPIC)
    for name, payload in newest.items():
        versions = [old.VERSION for old in SUPERSEDED if name == old.NAME]
        assert sorted([*versions, payload.VERSION]) == list(range(1, payload.VERSION + 1))


def test_existing_golden_files_are_never_overwritten(tmp_path: Path) -> None:
    first = path_of(examples.ALL[0], tmp_path)
    first.write_bytes(b"old")
    written = write_missing(tmp_path)
    assert first.read_bytes() == b"old"
    assert len(written) == len(examples.ALL) - 1
    assert write_missing(tmp_path) == []


# -- the fields themselves --------------------------------------------------------------------------------------------

def test_fields_are_those_that_were_promised() -> None:
    """A failure names the break. New fields at the end, with defaults: `python -m tests.golden.regenerate`."""
    now = shapes_of((*PAYLOADS, *SUPERSEDED))
    assert breaks(kept_shapes(), now) == []
    assert now == kept_shapes(), "new types or fields: run `python -m tests.golden.regenerate`"


class _Old(Payload, frozen=True, kw_only=True):
    NAME, TOPIC = "mood.noted", "tasks"
    who: str
    depth: Int64 = 1
    word: str = "calm"


class _Renamed(Payload, frozen=True, kw_only=True):
    NAME, TOPIC = "mood.noted", "tasks"
    who: str
    deepness: Int64 = 1
    word: str = "calm"


class _Retyped(Payload, frozen=True, kw_only=True):
    NAME, TOPIC = "mood.noted", "tasks"
    who: str
    depth: float = 1
    word: str = "calm"


class _Reordered(Payload, frozen=True, kw_only=True):
    NAME, TOPIC = "mood.noted", "tasks"
    depth: Int64 = 1
    who: str
    word: str = "calm"


class _Defaultless(Payload, frozen=True, kw_only=True):
    NAME, TOPIC = "mood.noted", "tasks"
    who: str
    depth: Int64
    word: str = "calm"


class _OtherDefault(Payload, frozen=True, kw_only=True):
    NAME, TOPIC = "mood.noted", "tasks"
    who: str
    depth: Int64 = 2
    word: str = "calm"


class _Demanding(Payload, frozen=True, kw_only=True):
    NAME, TOPIC = "mood.noted", "tasks"
    who: str
    depth: Int64 = 1
    word: str = "calm"
    more: str


class _Grown(Payload, frozen=True, kw_only=True):
    NAME, TOPIC = "mood.noted", "tasks"
    who: str
    depth: Int64 = 1
    word: str = "calm"
    more: str = ""


@pytest.mark.parametrize(("newer", "says"), [
    (_Renamed, "field `depth` was removed or renamed"),
    (_Retyped, "field `depth` changed from int64, default 1 to float, default 1"),
    (_Reordered, "fields were reordered"),
    (_Defaultless, "field `depth` changed from int64, default 1 to int64, required"),
    (_OtherDefault, "field `depth` changed from int64, default 1 to int64, default 2"),
    (_Demanding, "field `more` was added without a default"),
], ids=lambda value: getattr(value, "__name__", ""))
def test_a_change_that_breaks_readers_is_named(newer: type[Payload], says: str) -> None:
    assert any(says in line for line in breaks(shapes_of([_Old]), shapes_of([newer])))


def test_a_type_that_is_gone_is_a_break_and_a_field_at_the_end_is_none() -> None:
    assert breaks(shapes_of([_Old]), {}) == ["mood.noted.v1: removed"]
    assert breaks(shapes_of([_Old]), shapes_of([_Grown])) == []


def test_kept_schemas_are_not_overwritten_by_a_break(tmp_path: Path) -> None:
    assert add_shapes(tmp_path) == []
    kept = (tmp_path / "schemas.json").read_text().replace('"prefix"', '"prefixes"')
    (tmp_path / "schemas.json").write_text(kept)
    assert "turn.generated.v1: field `prefixes` was removed or renamed" in add_shapes(tmp_path)
    assert (tmp_path / "schemas.json").read_text() == kept
