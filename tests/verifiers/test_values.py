"""Values cross a process boundary unchanged, or not at all; equality is strict."""

from __future__ import annotations

import json
import math
from collections import Counter, namedtuple
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers import values

_SCALARS = (st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
            | st.complex_numbers(allow_nan=False))
_KEYS = st.integers() | st.text() | st.booleans() | st.tuples(st.integers(), st.text())
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.sets(_KEYS, max_size=4)
    | st.frozensets(_KEYS, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4), max_leaves=12)


class Agreeable:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


class AgreeableInt(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


@given(_VALUES)
def test_what_crosses_is_the_same_value(value: Any) -> None:
    crossed = values.decode(json.loads(values.canonical(values.encode(value))))
    assert values.same(crossed, value) and values.same(value, crossed)
    assert type(crossed) is type(value)


@pytest.mark.parametrize(("got", "want"), [
    (1, 1.0), (float("nan"), float("nan")), (10**400, 10**400), ([1, (2, {3: {4}})], [1, (2, {3: {4}})]),
    ({1: "a", 2: "b"}, {2: "b", 1: "a"}), ({1, 2}, {2, 1}), (0.0, -0.0), (10**400 + 0, 10**400)])
def test_equal(got: Any, want: Any) -> None:
    assert values.same(got, want)


@pytest.mark.parametrize(("got", "want"), [
    (True, 1), (1, True), (0, False), ("1", 1), ([1], (1,)), ({1}, frozenset({1})), (b"a", "a"), (None, 0), ([], None),
    ([1], [1, 1]), ({1: 2}, {1: 2, 3: 4}), ({True}, {1}), ({True: 1}, {1: 1}), (float("nan"), 0.0), (10**400, 1.0),
    ([True], [1]), (1.0000001, 1.0), (math.inf, -math.inf)])
def test_not_equal(got: Any, want: Any) -> None:
    assert not values.same(got, want)


def test_a_tolerance_is_for_numbers_alone() -> None:
    assert values.same([0.1 + 0.2], [0.3], tolerance=1e-9)
    assert not values.same([0.31], [0.3], tolerance=1e-9)
    assert not values.same(True, 1, tolerance=1)
    assert not values.same(float("nan"), 0.0, tolerance=math.inf)


def test_methods_of_a_subclass_stay_behind() -> None:
    assert values.encode(AgreeableInt(7)) == 7 and type(values.encode(AgreeableInt(7))) is int
    assert values.encode(namedtuple("Pair", "a b")(1, 2)) == {"tuple": [1, 2]}
    assert values.encode(Counter("aab")) == {"dict": [["a", 2], ["b", 1]]}


@pytest.mark.parametrize("value", [Agreeable(), [Agreeable()], {"a": Agreeable()}, range(3), iter([]), lambda: 1])
def test_what_has_no_plain_form_does_not_cross(value: Any) -> None:
    with pytest.raises(values.Unencodable):
        values.encode(value)


@pytest.mark.parametrize("data", [
    {"tuple": 3}, {"nonsense": []}, {}, {"int": "zz"}, {"int": 5}, {"float": "1.0"}, {"bytes": "?"}, {"set": [[1]]},
    {"dict": [[1]]}, {"dict": [[1, 2], [1, 3]]}, {"complex": []}, {"tuple": [], "list": []}, {"set": 1}, {"dict": 7}])
def test_data_that_stands_for_no_value_is_refused(data: Any) -> None:
    with pytest.raises(values.Unencodable):
        values.decode(data)


def test_depth_size_and_colliding_keys_are_bounded() -> None:
    deep: list[Any] = []
    for _ in range(values.DEPTH_LIMIT + 1):
        deep = [deep]
    circle: list[Any] = []
    circle.append(circle)
    colliding = {"set": [{"int": hex(index * (2**61 - 1))} for index in range(values.HASHED_LIMIT + 1)]}
    for value in (deep, circle, [0] * (values.NODE_LIMIT + 1), set(range(values.HASHED_LIMIT + 1))):
        with pytest.raises(values.Unencodable):
            values.encode(value)
    for data in (deep, [0] * (values.NODE_LIMIT + 1), colliding):
        with pytest.raises(values.Unencodable):
            values.decode(data)
