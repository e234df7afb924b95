"""What static analysis found that was not there before. Standard library alone: it runs on both sides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

SCALE = 10.0


def new_findings(before: Iterable[str], after: Iterable[str]) -> list[str]:
    """Findings are texts `line: what`; one that moved to another line is the same finding."""
    known = Counter(map(_kind, before))
    new = []
    for finding in after:
        known[_kind(finding)] -= 1
        if known[_kind(finding)] < 0:
            new.append(finding)
    return new


def _kind(finding: str) -> str:
    return finding.partition(": ")[2] or finding
