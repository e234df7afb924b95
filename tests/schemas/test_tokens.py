"""Token buffers: exact round trips, sizes that were promised, and refusal of what a policy must not return."""

from __future__ import annotations

import hashlib
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import make_event
from schemas.errors import SchemaError
from schemas.events import TurnGenerated
from schemas.ids import digest
from schemas.tokens import (
    PrefixDigest,
    check_generated,
    pack_ids,
    pack_logprobs,
    unpack_ids,
    unpack_logprobs,
)

_IDS = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=200)


@given(_IDS)
def test_ids_come_back(ids: list[int]) -> None:
    assert unpack_ids(pack_ids(ids)) == ids
    assert len(pack_ids(ids)) == 4 * len(ids)


@given(st.lists(st.floats(width=32, allow_nan=False), max_size=200))
def test_logprobs_come_back(logprobs: list[float]) -> None:
    assert unpack_logprobs(pack_logprobs(logprobs)) == logprobs


def test_buffers_are_little_endian() -> None:
    assert pack_ids([1, -2]) == struct.pack("<ii", 1, -2)
    assert pack_logprobs([-0.5]) == struct.pack("<f", -0.5)


def test_nan_survives_a_buffer() -> None:
    """The buffer hides nothing; refusing NaN is `check_generated`'s work."""
    assert math.isnan(unpack_logprobs(pack_logprobs([math.nan]))[0])


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_torn_buffer_is_refused(size: int) -> None:
    for unpack in (unpack_ids, unpack_logprobs):
        with pytest.raises(SchemaError, match=f"not a whole number of 4-byte values: {size}"):
            unpack(b"\0" * size)


@given(st.lists(_IDS, max_size=5))
def test_a_prefix_digest_does_not_depend_on_chunks(chunks: list[list[int]]) -> None:
    prefix, whole = PrefixDigest(), b""
    for chunk in chunks:
        prefix.add(pack_ids(chunk))
        whole += pack_ids(chunk)
        assert prefix.value() == digest(whole) == "sha256:" + hashlib.sha256(whole).hexdigest()


def test_logprobs_are_checked_where_they_are_made() -> None:
    check_generated([1, 2], [-0.1, 0.0], "turn 3")
    check_generated([1, 2], None, "turn 3")
    with pytest.raises(SchemaError, match="2 generated tokens but 1 logprobs at turn 3") as caught:
        check_generated([1, 2], [-0.1], "turn 3")
    assert "one logprob for each sampled token" in caught.value.paragraph()
    for wrong in (math.nan, math.inf, -math.inf, -1e39):
        with pytest.raises(SchemaError, match=r"logprob is not finite at turn 3\.logprobs\[1\]"):
            check_generated([1, 2], [-0.1, wrong], "turn 3")
    for token in (-1, 2**31):
        with pytest.raises(SchemaError, match=r"token id is out of range at turn 3\.generated\[1\]"):
            check_generated([1, token], None, "turn 3")


@given(st.integers(0, 3000), st.integers(0, 3000), st.text(max_size=300), st.integers(0, 2**31 - 1))
def test_a_turn_costs_four_bytes_a_context_and_eight_a_generated_token(
        context: int, generated: int, text: str, number: int) -> None:
    turn = TurnGenerated(
        turn=number, segment=number, context=pack_ids([7] * context), generated=pack_ids([7] * generated),
        logprobs=pack_logprobs([-1.0] * generated), versions=[(number, generated)], prefix=digest(b""), text=text,
        finish_reason="length", sampler="transformers-5.19.0 torch-2.13.0",
        started_at=2**52, finished_at=2**52)
    value = make_event(turn, subject="episode", source="writer", time_us=0).data
    assert len(value) <= 4 * context + 8 * generated + len(text.encode()) + 400
