"""Ids as digests: exact, small, the same however they came in."""

from __future__ import annotations

import tracemalloc
from hashlib import md5

from hypothesis import given
from hypothesis import strategies as st

from schemas.idset import IdSet


@given(st.sets(st.text()), st.sets(st.text()), st.sets(st.text()))
def test_it_holds_what_was_put_in_and_nothing_else(added: set[str], loaded: set[str], others: set[str]) -> None:
    ids = IdSet(added)
    ids.add_digests(b"".join(md5(one.encode()).digest() for one in loaded - added))
    for one in added | loaded:
        assert one in ids
        ids.add(one)
    assert len(ids) == len(added | loaded)
    assert not any(one in ids for one in others - added - loaded)
    assert ids == IdSet(added | loaded)


def test_a_digest_that_lies_across_two_others_is_not_found() -> None:
    ids = IdSet()
    wanted = md5(b"wanted").digest()
    neighbours = wanted[:2] + bytes(11) + wanted[:3], wanted[:2] + wanted[5:] + bytes(3)
    ids.add_digests(b"".join(neighbours))
    ids._buckets[wanted[:2]][13:29] = wanted
    assert "wanted" not in ids
    ids.add("wanted")
    assert "wanted" in ids


def test_an_id_costs_some_twenty_bytes() -> None:
    tracemalloc.start()
    try:
        ids = IdSet()
        before = tracemalloc.get_traced_memory()[0]
        count = 400_000
        for number in range(count):
            ids.add(f"0199d7a2-7b6c-7000-8000-{number:012d}")
        full = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(ids) == count
    assert full < 14_000_000 + 20 * count  # Its 65,536 buckets, once, and then each id.
