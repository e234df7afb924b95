"""The tests of a repository task with what is wanted taken out, and the verdict on each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from schemas.ids import digest
from verifiers import values
from verifiers.repository_places import holds, stands_out
from verifiers.repository_places import line_up as make_line_up
from verifiers.repository_report import Report
from verifiers.repository_seal import Place, Sealed, seal
from verifiers.repository_values import WHOLE

_SHOWN = 200


class Outcomes(NamedTuple):
    """By the ids that the task has."""

    tests: dict[str, str]
    failures: dict[str, str]
    tampering: set[str]
    hard: set[str]
    """Tests that passed by a value which nobody guesses."""
    unsure: dict[str, dict[int, int]]
    """Ids inside, with the numbers of places that need a line-up, and their rows."""


class SealedTests:
    def __init__(self, files: Mapping[str, bytes], expected: Sequence[str], secret: str) -> None:
        self._secret = secret
        self.files = dict(files)
        self.places: dict[int, Place] = {}
        self._sealed: dict[str, Sealed] = {}
        self._expected = list(dict.fromkeys(expected))
        functions: dict[str, list[str]] = {}
        for name in self._expected:
            file, function = _parts(name)
            functions.setdefault(file, []).append(function)
        for file, names in functions.items():
            made = seal(files[file], names, len(self.places), f"{secret} {file}")
            self._sealed[file] = made
            self.files[file] = made.source
            self.places |= made.places
        self.rows = {name for name in {name.partition("[")[0] for name in self._expected}
                     if self._has_tokens(*_parts(name))}
        """Functions whose rows have other ids inside: all their rows are run."""

    def _has_tokens(self, file: str, function: str) -> bool:
        sealed = self._sealed[file]
        return any(len(sealed.places[number].wants) > 1 for number in sealed.tests.get(function, ()))

    def judge(self, report: Report, shown: Mapping[str, Mapping[int, Any]] | None = None) -> Outcomes:
        """`shown`: of a run with line-ups, these."""
        found = Outcomes({}, {}, set(), set(), {})
        wanted = set(self._expected)
        for inside, outcome in report.tests.items():
            file, function = _parts(inside)
            sealed = self._sealed.get(file)
            name, row = sealed.told(inside) if sealed else (inside, 0)
            if name not in wanted:
                continue
            found.tests[name] = outcome
            if inside in report.failures:
                found.failures[name] = report.failures[inside]
            if outcome == "passed" and sealed:
                self._compare(found, (inside, name, function, row), report, (shown or {}).get(inside, {}))
        return found

    def _compare(self, found: Outcomes, test: tuple[str, str, str, int], report: Report,
                 shown: Mapping[int, Any]) -> None:
        inside, name, function, row = test
        came = report.came.get(inside, {})
        needed = self._sealed[_parts(inside)[0]].tests.get(function, [])
        if any(len(came.get(number, ())) != self.places[number].times for number in needed):
            found.tests[name] = "unproven"
            found.tampering.add("a test is said to have passed, but what it found did not come")
            return
        for number, records in came.items():
            place = self.places.get(number)
            verdicts = [self._verdict(found, place, number, row, record, shown) for record in records] if place else []
            if None in verdicts:
                found.unsure.setdefault(inside, {})[number] = row
            if not place or False in verdicts:
                found.tests[name] = "failed"
                found.failures[name] = _wrong(place, row, records[verdicts.index(False)]) if place else (
                    "a place that is not there")
                return
            if place.is_hard(row):
                found.hard.add(name)

    def _verdict(self, found: Outcomes, place: Place, number: int, row: int, record: Mapping[str, Any],
                 shown: Mapping[int, Any]) -> bool | None:
        if number not in shown:
            return holds(place, row, record)
        line_up, where = shown[number]
        bits = record.get("bits")
        if isinstance(bits, list) and len(bits) > 2 and all(bit is True for bit in bits):
            found.tampering.add("a value is equal to everything")
        return stands_out(bits, where, len(line_up))

    def names(self, inside: Iterable[str]) -> list[str]:
        return [self._sealed[_parts(name)[0]].told(name)[0] for name in inside]

    def line_ups(self, unsure: Mapping[str, Mapping[int, int]]) -> dict[str, dict[int, tuple[list[Any], int]]]:
        def made(inside: str, number: int, row: int) -> tuple[list[Any], int]:
            return make_line_up(self.places[number], row, digest(f"{self._secret} {inside} {number}".encode()))

        return {inside: {number: made(inside, number, row) for number, row in places.items()}
                for inside, places in unsure.items()}

    def request(self, shown: Mapping[str, Mapping[int, tuple[list[Any], int]]] | None = None) -> dict[str, Any]:
        """What the runner is told: nothing of it tells a wanted value, but a line-up among others."""
        def asked(number: int, values: list[Any]) -> dict[str, Any]:
            comparison = self.places[number].asked
            return {"shown": values, "kind": comparison.kind, "flipped": comparison.flipped,
                    "tolerance": comparison.tolerance}

        return {
            "expected": [name for name in self._expected if name.partition("[")[0] not in self.rows]
            if shown is None else list(shown), "functions": sorted(self.rows) if shown is None else [],
            "kinds": {number: place.asked.kind for number, place in self.places.items()},
            "line_ups": {inside: {number: asked(number, values) for number, (values, _) in places.items()}
                         for inside, places in (shown or {}).items()}}


def _parts(node_id: str) -> tuple[str, str]:
    """The file of a test and its function."""
    file, _, rest = node_id.partition("::")
    return file, rest.partition("[")[0]


def _wrong(place: Place, row: int, record: Mapping[str, Any]) -> str:
    return f"line {place.line}: found {_described(record)}, wanted {_text(values.encode(place.want(row)))}"


def _described(record: Mapping[str, Any]) -> str:
    if "object" in record:
        return f"an object ({record['object']})"
    if "digest" in record:
        return f"another value of more than {WHOLE} characters"
    return _text(record["value"]) if "value" in record else "an object that is equal to other values"


def _text(encoded: Any) -> str:
    """What came may have been forged: it need not be an encoded value."""
    try:
        return values.canonical(encoded)[:_SHOWN]
    except (ValueError, TypeError, RecursionError):
        return "what is no value"
