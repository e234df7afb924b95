"""Runs inside the sandbox: the expected tests of a repository, under pytest, from files that cannot be written.

The tests run beside the submission's code, so nothing here is out of its reach for good. What counts is therefore what
is not here: the values that sealed tests want (verifiers.repository_seal), whose places report what came. For the rest
a forgery must be made against every one of these: a channel of no known number, a secret on each record that is on no
file, environment or command line, tests that must fail run last, and all that verifiers.repository_watch tells.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from verifiers import repository_values, repository_watch, values

TEXT, TEXTS = 400, 100
"""Of a failure, and how many failures come with their text."""


def main() -> None:
    request = json.loads(sys.stdin.buffer.read())
    library = os.path.dirname(os.__file__)
    sys.path.insert(0, request["libraries"])
    sys.path += request["paths"]
    import pytest

    say = _speaker(os.dup(1), request["secret"])
    repository_watch.strict_equality(say, request["any"])
    plugin = Plugin(request, say)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    say({"begin": True})
    repository_watch.tell_steps(say, [library, request["libraries"], plugin.folder, "<string>"], request["usual"])
    code = pytest.main([*request["arguments"], *request["files"], request["canary"]], plugins=[plugin])
    plugin.look()
    say({"end": int(code)})
    os._exit(0)


def _speaker(channel: int, secret: str) -> Callable[[dict[str, Any]], None]:
    write, dumps = os.write, json.dumps

    def say(record: dict[str, Any]) -> None:
        line = dumps({**record, "secret": secret}).encode() + b"\n"
        while line:
            line = line[write(channel, line):]

    return say


class Plugin:
    def __init__(self, request: dict[str, Any], say: Callable[[dict[str, Any]], None]) -> None:
        import builtins

        self._expected, self._functions = frozenset(request["expected"]), frozenset(request["functions"])
        self._line_ups: dict[str, dict[str, Any]] = request["line_ups"]
        self._canary: str = os.path.basename(request["canary"])
        self.folder: str = os.path.dirname(request["canary"])
        self._say, self._left, self._now = say, TEXTS, ""
        self._kinds: dict[str, str] = request["kinds"]
        builtins.__headrace_value__ = self.came  # type: ignore[attr-defined]
        self._watch = repository_watch.Watch()
        self._outcomes: dict[str, str] = {}

    def came(self, number: int, value: Any) -> None:
        """What a sealed place found."""
        asked = self._line_ups.get(self._now, {}).get(str(number))
        form = repository_values.form_of(value, self._kinds[str(number)]) if asked is None else {
            "bits": [_is_met(asked, value, values.decode(one)) for one in asked["shown"]]}
        self._say({"at": number, "test": self._now, **form})

    def pytest_collectreport(self, report: Any) -> None:
        if not report.passed:
            self._say({"broken": report.nodeid, "why": str(report.longrepr)[-TEXT:]})

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid in self._expected or self._ours(item.nodeid)
                    or item.nodeid.partition("[")[0] in self._functions]
        items.sort(key=lambda item: self._ours(item.nodeid))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._now = nodeid

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        """A test may say of itself that it is expected to fail; what it tests may not."""
        if not self._left:
            item.repr_failure = _no_text
        if call.excinfo is not None and type(call.excinfo.value).__name__ == "XFailed":
            frames = [str(entry.path) for entry in call.excinfo.traceback]
            callers = [path for path in frames if "/_pytest/" not in path]
            if not callers or not callers[-1].startswith(self.folder):
                self._say({"patched": "pytest.xfail, called by what is tested"})

    def pytest_runtest_logreport(self, report: Any) -> None:
        name = report.nodeid
        expected = hasattr(report, "wasxfail") and report.outcome != "failed"
        outcome = "passed" if expected else str(report.outcome)
        if report.when != "setup" or outcome != "passed":
            before = self._outcomes.get(name)
            self._outcomes[name] = outcome if before in (None, "passed") else str(before)
        if report.failed:
            self._tell_failure(name, report)
        if report.when == "teardown":
            self.look()
            kind = "canary" if self._ours(name) else "test"
            self._say({kind: name.partition("::")[2] if kind == "canary" else name,
                       "outcome": self._outcomes.get(name, "passed")})

    def _tell_failure(self, name: str, report: Any) -> None:
        if self._left and not self._ours(name):
            self._left -= 1
            self._say({"failure": name, "why": str(report.longrepr)[-TEXT:]})

    def look(self) -> None:
        for name in self._watch.changed():
            self._say({"patched": name})

    def _ours(self, nodeid: str) -> bool:
        return nodeid.partition("::")[0] == self._canary


def _no_text(*_: Any, **__: Any) -> str:
    return ""


def _is_met(asked: dict[str, Any], value: Any, shown: Any) -> bool:
    try:
        if asked["kind"] == "in":
            return bool(shown in value)
        if asked["kind"] == "near":
            import pytest

            relative, absolute = asked["tolerance"]
            return bool(value == pytest.approx(shown, rel=relative, abs=absolute))
        return bool(shown == value if asked["flipped"] else value == shown)
    except Exception:
        return False
