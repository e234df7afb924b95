"""Ids are time-ordered or repeatable; digests are checked."""

from __future__ import annotations

import threading
import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.ids import _Clock, digest, is_digest, new_id, now_us, stable_id, wall_us


def _milliseconds(text: str) -> int:
    return uuid.UUID(text).int >> 80


def test_a_new_id_is_a_uuid_of_version_7() -> None:
    for _ in range(200):
        made = uuid.UUID(new_id())
        assert (made.version, made.variant) == (7, uuid.RFC_4122)


def test_a_new_id_carries_its_time() -> None:
    before = time.time_ns() // 1_000_000
    text = new_id()
    assert before <= _milliseconds(text) <= time.time_ns() // 1_000_000


def test_new_ids_are_unique_and_sort_by_millisecond() -> None:
    ids = [new_id() for _ in range(5000)]
    assert len(set(ids)) == len(ids)
    assert [_milliseconds(text) for text in sorted(ids)] == sorted(_milliseconds(text) for text in ids)


def test_a_stable_id_never_changes() -> None:
    """Stored events carry these ids: the value itself is a promise."""
    assert stable_id("score", "sha256:aa", "sha256:bb", "live") == "0b4c1c14-f855-52c8-a73e-ab7a9ea6e238"
    assert uuid.UUID(stable_id("a")).version == 5


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\x1f")), min_size=1, max_size=4),
       st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\x1f")), min_size=1, max_size=4))
def test_stable_ids_differ_where_parts_differ(one: list[str], other: list[str]) -> None:
    assert (stable_id(*one) == stable_id(*other)) == (one == other)


def test_digests_are_recognised() -> None:
    assert digest(b"") == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert digest(memoryview(b"abc")) == digest(b"abc")
    assert is_digest(digest(b"x"))
    for wrong in ("", "sha256:", "sha256:" + "g" * 64, "sha256:" + "A" * 64, "sha256:" + "a" * 63, "a" * 64,
                  "sha256:../" + "a" * 61):
        assert not is_digest(wrong)


def test_now_is_in_microseconds() -> None:
    before = time.time()
    assert before - 1 < now_us() / 1e6 < time.time() + 1


def test_ids_of_one_process_are_made_in_their_order_by_any_thread() -> None:
    """Within a millisecond too: the later id is the larger."""
    ids = [new_id() for _ in range(20_000)]
    assert ids == sorted(ids) and len(set(ids)) == len(ids)
    made: list[list[str]] = [[] for _ in range(4)]
    threads = [threading.Thread(target=lambda mine=mine: mine.extend(new_id() for _ in range(3000))) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == sorted(mine) for mine in made) and len({one for mine in made for one in mine}) == 12_000


def test_ids_and_times_go_on_when_the_clock_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schemas.ids._CLOCK", _Clock())
    hour_ns, real = 3600 * 10**9, time.time_ns
    before, id_before = now_us(), new_id()
    monkeypatch.setattr("schemas.ids.time.time_ns", lambda: real() - hour_ns)
    times, ids = [now_us() for _ in range(100)], [new_id() for _ in range(100)]
    assert [before, *times] == sorted([before, *times]) and [id_before, *ids] == sorted([id_before, *ids])
    assert times[-1] - before < 10**9, "it goes on at the pace of time, not from where a clock might be"
    assert wall_us() < before - 3 * 10**9, "leases are compared with the clocks of others"
    monkeypatch.setattr("schemas.ids.time.time_ns", lambda: real() + hour_ns)
    assert now_us() > times[-1] + 3 * 10**9 and new_id() > ids[-1]


def test_a_millisecond_of_many_ids_runs_over_into_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock()
    monkeypatch.setattr("schemas.ids._CLOCK", clock)
    first = new_id()
    clock._milliseconds, clock._tail = _milliseconds(first) + 5000, (1 << 74) - 1
    second = new_id()
    assert second > first and _milliseconds(second) == _milliseconds(first) + 5001
    assert (uuid.UUID(second).version, uuid.UUID(second).variant) == (7, uuid.RFC_4122)
