"""What a test run said: records that bear its secret, read as untrusted text. Anything without it was not ours."""

from __future__ import annotations

import json
from typing import Any

from sandboxes.sandbox import ExecResult

CANARY = """import unittest


def test_fails():
    assert 1 == 2


def test_raises():
    raise ValueError


class Test(unittest.TestCase):
    def test_fails(self):
        self.assertEqual(1, 2)


def test_passes():
    assert 1 == 1
"""
"""Tests that run last, under a name that cannot be known beforehand."""
_CANARY_OUTCOMES = {"test_fails": "failed", "test_raises": "failed", "Test::test_fails": "failed",
                    "test_passes": "passed"}


class Report:
    """Tests by the ids that they had inside."""

    def __init__(self) -> None:
        self.tests: dict[str, str] = {}
        self.came: dict[str, dict[int, list[dict[str, Any]]]] = {}
        """What sealed places found, by test and number."""
        self.failures: dict[str, str] = {}
        self.broken: list[str] = []
        self.tampering: set[str] = set()
        self.ended = False
        self._canaries: dict[str, str] = {}

    def take(self, record: dict[str, Any]) -> None:
        if "at" in record:
            places = self.came.setdefault(str(record.get("test")), {})
            places.setdefault(int(record["at"]), []).append(record)
        elif "test" in record:
            name = str(record["test"])
            if name in self.tests or self.ended:
                self.tampering.add("a test is reported twice")
            self.tests[name] = str(record.get("outcome"))
        elif "canary" in record:
            self._canaries[str(record["canary"])] = str(record.get("outcome"))
        elif "failure" in record:
            self.failures[str(record["failure"])] = str(record.get("why"))
        elif "broken" in record:
            self.broken.append(f"{record['broken']}: {record.get('why')}")
        elif "end" in record:
            self.ended = True
        else:
            self._take_signs(record)

    def _take_signs(self, record: dict[str, Any]) -> None:
        if "patched" in record:
            self.tampering.add(f"the test runner was patched: {record['patched']}")
        elif "agreeable" in record:
            self.tampering.add(f"a value is equal to everything: {record['agreeable']}")
        elif "step" in record:
            self.tampering.add(f"the submission looked for what judges it: {record['step']}")

    def close(self, ran: ExecResult) -> None:
        if self.ended and self._canaries != _CANARY_OUTCOMES:
            self.tampering.add("tests that must fail did not, or were not run")
        if not self.ended and not (ran.timed_out or ran.oom or ran.output_limit):
            self.tampering.add("the test run was ended from within")


def read_report(ran: ExecResult, secret: str) -> Report:
    report = Report()
    for line in ran.stdout.split(b"\n"):
        record = _record(line, secret)
        if record is not None:
            report.take(record)
        elif line and not ran.truncated:
            report.tampering.add("something else wrote into the report")
    report.close(ran)
    return report


def _record(line: bytes, secret: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or record.get("secret") != secret:
        return None
    return record if isinstance(record.get("at", 0), int) else None
