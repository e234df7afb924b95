"""What is taken out of a test file: its wanted values, and nothing that would change what an honest test does."""

from __future__ import annotations

import ast

import pytest

from verifiers.repository_places import LINE_UP, holds, line_up, resembling, stands_out
from verifiers.repository_seal import Sealed, seal

SEALED = {
    "a literal": ("assert f(1) == 47", [47]), "on the left": ("assert 47 == f(1)", [47]),
    "over lines": ("assert f(\n        1) == [\n        47, 48]", [[47, 48]]),
    "a name": ("want = {'a': 47}\n    got = f(1)\n    assert got == want", [{"a": 47}]),
    "a name on the left": ("want = 47\n    got = f(1)\n    assert want == got", [47]),
    "sums and products": ("assert f(1) == 'ab' * 3 + 'c'", ["abababc"]),
    "and": ("assert f(1) == 47 and f(2) in (1, 2) and 'x' in f(3)", []),
    "all of and": ("assert f(1) == 47 and f(2) == 48", [47, 48]), "inside": ("assert 'needle' in f(1)", ["needle"]),
    "about": ("assert f(1) == pytest.approx(4.7, abs=0.1)", [4.7]), "nothing": ("assert f(1) is None", [None]),
    "a loop over literals": ("for n in (1, 2):\n        assert f(n) == 47", [47]),
    "a context": ("with open(f(1)) as file:\n        assert file.read() == 'text'", ["text"]),
    "a method": ("self.assertEqual(f(1), 47, 'why')", [47]),
    "almost": ("self.assertAlmostEqual(f(1), 4.75, places=1)", [4.75]),
}
LEFT = {
    "a branch": "if f(1):\n        assert f(2) == 47",
    "a loop over what comes": "for n in f(1):\n        assert n == 47",
    "a loop that is left": "for n in (1, 2):\n        assert f(n) == 47\n        break",
    "inside raises": "with pytest.raises(ValueError):\n        assert f(1) == 47",
    "inside try": "try:\n        assert f(1) == 47\n    finally:\n        pass",
    "nested": "def g():\n        assert f(1) == 47\n    g()", "returns": "assert f(1) == 47\n    return",
    "expects to fail": "assert f(1) == 47\n    pytest.xfail('later')", "computed": "assert f(1) == len('abc')",
    "a name that serves for more": "want = 47\n    assert f(want) == want",
    "a name bound twice": "want = 47\n    want += 1\n    assert f(1) == want", "not a number": "assert f(1) != 47",
    "chained": "assert 1 < f(1) == 47", "a name of others": "assert f(1) == want",
}


def sealed(body: str, before: str = "") -> Sealed:
    source = f"import pytest\n\n\n{before}def test_it(self=None):\n    {body}\n\n\nlast = 1\n"
    made = seal(source.encode(), ["test_it"], 0, "secret")
    assert made.source.count(b"\n") == source.count("\n")
    assert [node.lineno for node in ast.parse(made.source).body] == [node.lineno for node in ast.parse(source).body]
    return made


@pytest.mark.parametrize("name", SEALED)
def test_what_a_test_compares_with_is_taken_out(name: str) -> None:
    body, wants = SEALED[name]
    made = sealed(body)
    assert [place.wants[0] for place in made.places.values()] == wants
    for want in wants:
        assert want is None or repr(want).encode() not in made.source
    assert made.tests == {"test_it": list(range(len(wants)))}


@pytest.mark.parametrize("name", LEFT)
def test_what_a_test_may_not_come_by_is_left_as_it_was(name: str) -> None:
    made = sealed(LEFT[name])
    assert not made.places and LEFT[name].encode() in made.source


def test_columns_of_parameters_go_with_the_ids_that_tell_them() -> None:
    before = "@pytest.mark.parametrize('n, want', [(1, 40 + 7), (2, 'forty'), (1, 47)])\n"
    made = seal(f"import pytest\n\n\n{before}def test_it(n, want):\n    assert f(n) == want\n".encode(), ["test_it"], 5,
                "secret")
    assert list(made.places) == [5] and made.places[5].wants == (47, "forty", 47)
    assert b"47" not in made.source and b"forty" not in made.source
    assert [made.told(f"t.py::test_it[{token}]") for token in made.tokens] == [
        ("t.py::test_it[1-47_0]", 0), ("t.py::test_it[2-forty]", 1), ("t.py::test_it[1-47_1]", 2)]
    for kept in (before.replace("47)]", "N)]"), before + before, before.replace("(1, 47)", "pytest.param(1, 47)")):
        assert not seal(f"{kept}def test_it(n, want):\n    assert f(n) == want\n".encode(), ["test_it"], 0, "s").places


@pytest.mark.parametrize("source", [
    b"def test_it(:\n", b"\xff\xfe", b"# coding: latin-1\ndef test_it():\n    assert f() == '\xe9'\n",
    b"def test_it():\r\n    assert f() == 47\r\n",
    b"pytestmark = pytest.mark.xfail\ndef test_it():\n    assert f() == 47\n",
    b"@xfail\nclass T:\n    def test_it(self):\n        assert f() == 47\n",
    b"@given(integers())\ndef test_it(n):\n    assert f(n) == 47\n"])
def test_a_file_that_is_not_understood_is_left_as_it_is(source: bytes) -> None:
    made = seal(source, ["test_it", "T::test_it"], 0, "s")
    assert (made.source, made.places, made.tokens) == (source, {}, {})


@pytest.mark.parametrize("want", [
    47, "needle", 4.7, [1, 2, 3], {"a": 1, "b": 2}, {1, 2}, (1, "x"), b"ab", "", [], None])
def test_a_wanted_value_stands_in_a_line_among_others_that_resemble_one_another(want: object) -> None:
    place = sealed(f"assert f(1) == {want!r}").places[0]
    shown, where = line_up(place, 0, "secret")
    assert (shown, where) == line_up(place, 0, "secret")
    assert holds(place, 0, {"value": shown[where]})
    assert not any(holds(place, 0, {"value": one}) for number, one in enumerate(shown) if number != where)
    assert len(shown) == (3 if want is None else LINE_UP)
    assert stands_out([number == where for number in range(len(shown))], where, len(shown))
    for bits in ([True] * len(shown), [False] * len(shown), [1] * len(shown), [], None, "True"):
        assert not stands_out(bits, where, len(shown))
    assert resembling(want, __import__("random").Random(1)) != want or want is None
