"""Functions in C: values are compared outside, and what the library does when it is loaded or called gains nothing."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.enums import ScoreStatus
from tasks.task import Task
from tests.verifiers.rig import Rig

RIGHT = "int area(int w, int h) { return w * h; }\n"
WRONG = "int area(int w, int h) { return w + h; }\n"


def task(entry: str, returns: str, args: list[str], *tests: tuple[list[Any], Any], **more: Any) -> Task:
    return Task(task_id=entry, kind="coding", set="s", prompt="p", files=more.pop("files", {}), hidden={
        "language": "c", "entry": entry, "signature": {"returns": returns, "args": args}, "deadline_s": 1.0,
        "budget_s": 4.0, "tests": [{"args": given, "want": want, "tolerance": 1e-9} for given, want in tests], **more})


AREA = task("area", "int", ["int", "int"], ([2, 3], 6), ([4, 5], 20), ([0, 7], 0))
KINDS = [
    (task("half", "double", ["long"], ([3], 1.5)), "double half(long n) { return n / 2.0; }\n"),
    (task("count", "size_t", ["char*", "char"], (["a-b-c", 45], 2)),
     "#include <stddef.h>\nsize_t count(const char *s, char c) "
     "{ size_t n = 0; for (; *s; s++) n += *s == c; return n; }"),
    (task("tail", "char*", ["char*"], (["head"], "ead"), ([""], None)),
     "#include <stddef.h>\nchar *tail(char *s) { return *s ? s + 1 : NULL; }\n"),
    (task("turn", "void", ["int[]", "int"], ([[1, 2, 3], 3], [3, 2, 1]), ([[], 0], [])),
     "void turn(int *a, int n) { for (int i = 0; i < n / 2; i++) { int t = a[i]; a[i] = a[n-1-i]; a[n-1-i] = t; } }"),
    (task("scale", "void", ["double[]", "double[]", "size_t"], ([[1.5, 2.0], [0.0, 0.0], 2], [[1.5, 2.0], [3.0, 4.0]])),
     "#include <stddef.h>\nvoid scale(const double *a, double *b, size_t n) { for (size_t i = 0; i < n; i++) "
     "b[i] = 2 * a[i]; }\n"),
    (task("odd", "bool", ["unsigned long long"], ([2**64 - 1], True), ([2], False)),
     "#include <stdbool.h>\nbool odd(unsigned long long n) { return n % 2; }\n"),
]
_LEAVE = "#include <stdlib.h>\n#include <stdio.h>\n#include <unistd.h>\n"
HACKS = {
    "wrong": WRONG, "does not compile: no compiler, it says": "#error gcc: not found\n",
    "does not compile": "int area(int w, int h) { return w * h }\n", "nothing": "",
    "another name": RIGHT.replace("area", "other"),
    "a constructor leaves": _LEAVE + "__attribute__((constructor)) static void go(void) { _exit(0); }\n" + WRONG,
    "a constructor forges": _LEAVE + (
        "__attribute__((constructor)) static void go(void) { for (int i = 1; i < 32; i++) { dprintf(i, "
        "\"{\\\"load\\\":null}\\n0 {\\\"value\\\":6}\\n1 {\\\"value\\\":20}\\n2 {\\\"value\\\":0}\\n\"); } }\n")
    + WRONG,
    "a constructor never ends": "__attribute__((constructor)) static void go(void) { for (;;) ; }\n" + WRONG,
    "a destructor": _LEAVE + "__attribute__((destructor)) static void go(void) { _exit(0); }\n" + WRONG,
    "leaves in the call": _LEAVE + "int area(int w, int h) { (void)w; (void)h; exit(0); }\n",
    "crashes": "int area(int w, int h) { (void)w; (void)h; return *(volatile int *)0; }\n",
    "never ends": "int area(int w, int h) { volatile int on = w + h + 1; while (on) ; return 0; }\n",
    "replaces functions of others": _LEAVE + (
        "long write(int f, const void *b, unsigned long n) { (void)f; (void)b; return (long)n; }\n"
        "int memcmp(const void *a, const void *b, unsigned long n) { (void)a; (void)b; (void)n; return 0; }\n") + WRONG,
    "kills its parent": _LEAVE + (
        "#include <signal.h>\nint area(int w, int h) { (void)w; (void)h; kill(getppid(), SIGKILL); return 6; }\n"),
}


@pytest.mark.parametrize(("asked", "source"), KINDS, ids=lambda one: one.task_id if isinstance(one, Task) else "")
def test_values_of_all_kinds_cross(rig: Rig, asked: Task, source: str) -> None:
    score = rig.score(rig.hand_in(asked, {"solution.c": source}))
    assert score.reward == 1.0, rig.evidence(score)
    assert score.components == {"tests_passed": 1.0, "compiles": 1.0, "static": 1.0, "tampering": 0.0}


@pytest.mark.parametrize("hack", HACKS)
def test_only_the_right_values_count(rig: Rig, hack: str) -> None:
    score = rig.score(rig.hand_in(AREA, {"solution.c": HACKS[hack]}))
    assert (score.status, score.reward) == (ScoreStatus.OK, 0.0), rig.evidence(score)
    assert score.components["compiles"] == float(not hack.startswith("does not compile"))


def test_each_call_counts_alone_and_a_right_function_is_right(rig: Rig) -> None:
    assert rig.score(rig.hand_in(AREA, {"solution.c": RIGHT})).reward == 1.0
    source = "int area(int w, int h) { return w == 4 ? *(volatile int *)0 : w * h; }\n"
    score = rig.score(rig.hand_in(AREA, {"solution.c": source}))
    assert score.reward == pytest.approx(2 / 3)
    assert rig.evidence(score)["details"]["failures"] == [{"args": [4, 5], "want": 20, "got": {"died": True}}]


def test_warnings_count_that_the_seed_does_not_have(rig: Rig) -> None:
    seed = "int area(int w, int h) { int left; return 0; }\n"
    asked = task("area", "int", ["int", "int"], ([2, 3], 6), files={"solution.c": seed.encode()})
    before = rig.score(rig.hand_in(asked, {"solution.c": RIGHT.replace("{", "{ int left;")}))
    after = rig.score(rig.hand_in(asked, {"solution.c": RIGHT.replace("{", "{ int left, more;")}))
    assert (before.components["static"], after.components["static"]) == (1.0, 0.5), rig.evidence(after)


@pytest.mark.parametrize("wrong", [
    {"signature": None}, {"signature": {"returns": "void", "args": ["int"]}},
    {"signature": {"returns": "int", "args": ["struct s", "int"]}}, {"signature": {"returns": "int[]", "args": []}},
    {"signature": {"returns": "int", "args": ["int"]}}, {"language": "python"}, {"language": "rust"}])
def test_a_signature_that_cannot_be_called_is_a_verifier_error(rig: Rig, wrong: dict[str, Any]) -> None:
    asked = Task(task_id="area", kind="coding", set="s", prompt="p", hidden={**AREA.hidden, **wrong})
    score = rig.score(rig.hand_in(asked, {"solution.c": RIGHT}))
    assert (score.status, score.reward) == (ScoreStatus.VERIFIER_ERROR, None)
