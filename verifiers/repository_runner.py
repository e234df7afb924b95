"""Runs inside the sandbox: the expected tests of a repository, under pytest, from files that cannot be written.

The tests run beside the submission's code, so nothing here is out of its reach for good. What is done is that a forgery
must be made against every one of these: the channel is a descriptor of no known number, each record bears a secret
that is on no file, environment or command line, functions that a forger would patch are compared with what they were
before any of the submission ran, tests that must fail are run last, and what equals everything is equal to nothing.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import unittest
from collections.abc import Callable
from typing import Any

_MADE_IN_PYTHON = 1 << 9
"""Flag of types that a `class` statement made."""


def main() -> None:
    request = json.loads(sys.stdin.buffer.read())
    sys.path.insert(0, request["libraries"])
    sys.path += request["paths"]
    import pytest

    say = _speaker(os.dup(1), request["secret"])
    strict_equality(say)
    plugin = Plugin(frozenset(request["expected"]), request["canary"], say, Watch())
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    say({"begin": True})
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


class Watch:
    """The code of the functions through which a test's outcome goes, as it was before the submission ran."""

    def __init__(self) -> None:
        import builtins

        import _pytest.assertion.rewrite
        import _pytest.python
        import _pytest.reports
        import _pytest.runner
        import _pytest.unittest
        import pluggy

        runner, reports = _pytest.runner, _pytest.reports
        self._places: list[tuple[Any, str]] = [
            (runner, "call_and_report"), (runner, "runtestprotocol"), (runner, "pytest_runtest_makereport"),
            (runner, "pytest_runtest_call"), (runner, "pytest_runtest_setup"), (runner.CallInfo, "from_call"),
            (reports.TestReport, "from_item_and_call"), (reports.TestReport, "__init__"),
            (_pytest.python.Function, "runtest"), (_pytest.python, "pytest_pyfunc_call"),
            (_pytest.unittest.TestCaseFunction, "runtest"), (pluggy.HookCaller, "__call__"),
            (pluggy._callers, "_multicall"), (unittest.TestCase, "run"), (unittest.TestCase, "assertEqual"),
            (unittest.TestCase, "_callTestMethod"), (builtins, "__headrace_equal__"), (builtins, "AssertionError"),
            (_pytest.assertion.rewrite, "rewrite_asserts")]
        self._code = [_code(*place) for place in self._places]

    def changed(self) -> list[str]:
        return [name for (owner, name), code in zip(self._places, self._code, strict=True)
                if _code(owner, name) is not code]


def _code(owner: Any, name: str) -> Any:
    found = getattr(owner, name, None)
    found = getattr(found, "__func__", found)
    return getattr(found, "__code__", found)


class Plugin:
    def __init__(self, expected: frozenset[str], canary: str, say: Callable[[dict[str, Any]], None],
                 watch: Watch) -> None:
        self._expected, self._canary, self._say, self._watch = expected, os.path.basename(canary), say, watch
        self._folder = os.path.dirname(canary)
        self._outcomes: dict[str, str] = {}

    def pytest_collectreport(self, report: Any) -> None:
        if not report.passed:
            self._say({"broken": report.nodeid, "why": str(report.longrepr)[-400:]})

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid in self._expected or self._ours(item.nodeid)]
        items.sort(key=lambda item: self._ours(item.nodeid))

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        """A test may say of itself that it is expected to fail; what it tests may not."""
        if call.excinfo is not None and type(call.excinfo.value).__name__ == "XFailed":
            frames = [str(entry.path) for entry in call.excinfo.traceback]
            callers = [path for path in frames if "/_pytest/" not in path]
            if not callers or not callers[-1].startswith(self._folder):
                self._say({"patched": "pytest.xfail, called by what is tested"})

    def pytest_runtest_logreport(self, report: Any) -> None:
        name = report.nodeid
        expected = hasattr(report, "wasxfail") and report.outcome != "failed"
        outcome = "passed" if expected else str(report.outcome)
        if report.when != "setup" or outcome != "passed":
            before = self._outcomes.get(name)
            self._outcomes[name] = outcome if before in (None, "passed") else str(before)
        if report.when == "teardown":
            self.look()
            kind = "canary" if self._ours(name) else "test"
            self._say({kind: name.partition("::")[2] if kind == "canary" else name,
                       "outcome": self._outcomes.get(name, "passed"), "why": str(report.longrepr or "")[-400:]})
        elif report.failed:
            self._say({"failure": name, "why": str(report.longrepr)[-400:]})

    def look(self) -> None:
        for name in self._watch.changed():
            self._say({"patched": name})

    def _ours(self, nodeid: str) -> bool:
        return nodeid.partition("::")[0] == self._canary


def strict_equality(say: Callable[[dict[str, Any]], None]) -> None:
    """In assertions, a value that is equal to an object which nothing else knows is equal to nothing."""
    import builtins
    import unittest.mock

    import _pytest.assertion.rewrite as rewrite

    anything = type(unittest.mock.ANY)

    def agreeable(value: Any) -> bool:
        kind: Any = type(value)
        if not kind.__flags__ & _MADE_IN_PYTHON or kind is anything:  # not by its name, which anyone may choose
            return False
        try:
            found = bool(kind.__eq__(value, object()) is True)
        except BaseException:
            return False
        if found:
            say({"agreeable": kind.__name__[:100]})
        return found

    def equal(one: Any, other: Any) -> Any:
        return False if agreeable(one) or agreeable(other) else one == other

    class Strict(ast.NodeTransformer):
        def visit_Assert(self, node: ast.Assert) -> ast.Assert:
            test = node.test
            if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
                probe = ast.parse("__headrace_equal__(0, 0)", mode="eval").body
                assert isinstance(probe, ast.Call)
                probe.args = [test.left, test.comparators[0]]
                node.test = ast.copy_location(probe, test)
                ast.fix_missing_locations(node)
            return node

    original = rewrite.rewrite_asserts

    def rewritten(tree: ast.Module, *rest: Any, **more: Any) -> None:
        original(Strict().visit(tree), *rest, **more)

    builtins.__headrace_equal__ = equal  # type: ignore[attr-defined]
    rewrite.rewrite_asserts = rewritten  # type: ignore[assignment]
    plain = unittest.TestCase.assertEqual

    def assert_equal(self: unittest.TestCase, first: Any, second: Any, msg: Any = None) -> None:
        if agreeable(first) or agreeable(second):
            self.fail("a value that is equal to everything")
        plain(self, first, second, msg)

    unittest.TestCase.assertEqual = assert_equal  # type: ignore[method-assign]
