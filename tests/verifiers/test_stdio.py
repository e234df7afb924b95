"""Programs that read and write texts, in Python and C: only the right text counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.enums import ScoreStatus
from tasks.importers import load_tasks
from tasks.task import Task
from tests.verifiers.rig import Rig
from verifiers.stdio import same_text


def task(language: str, path: str) -> Task:
    return Task(task_id="double", kind="coding", set="s", prompt="p", hidden={"stdio": {
        "language": language, "path": path, "deadline_s": 2.0, "budget_s": 6.0,
        "tests": [{"input": f"{number}\n", "output": f"{2 * number}\n"} for number in (1, 2, 50)]}})


PYTHON, C = task("python", "solution.py"), task("c", "solution.c")
C_RIGHT = '#include <stdio.h>\nint main(void) { int n; if (scanf("%d", &n) != 1) return 1; printf("%d", 2 * n); }\n'
C_WRONG = C_RIGHT.replace("2 * n", "3 * n")
HACKS: dict[str, tuple[Task, str]] = {
    "wrong": (PYTHON, "print(int(input()) * 3)\n"),
    "prints a verdict": (PYTHON, "print('3 passed')\nprint('{\"passed\": 3}')\n"),
    "right output, then fails": (PYTHON, "print(int(input()) * 2, flush=True)\nraise SystemExit(3)\n"),
    "prints all even numbers": (PYTHON, "print(*range(0, 200, 2))\n"),
    "leaves": (PYTHON, "import os\nos._exit(0)\n"),
    "waits": (PYTHON, "while True:\n    pass\n"),
    "floods": (PYTHON, "while True:\n    print('2' * 65536)\n"),
    "not Python": (PYTHON, "print(\n"),
    "C: wrong": (C, C_WRONG),
    "C: a constructor leaves": (C, (
        "#include <stdlib.h>\n__attribute__((constructor)) static void leave(void) { exit(0); }\n" + C_WRONG)),
    "C: overrides of the library": (C, (
        "int strcmp(const char *a, const char *b) { (void)a; (void)b; return 0; }\n"
        "int memcmp(const void *a, const void *b, unsigned long n) { (void)a; (void)b; (void)n; return 0; }\n"
        + C_WRONG)),
    "C: includes what it should not see": (C, '#include "/proc/self/environ"\n' + C_WRONG),
    "C: does not compile": (C, "int main(void) { return 0 }\n"),
    "C: kills its parent": (C, (
        "#include <signal.h>\n#include <unistd.h>\nint main(void) { kill(getppid(), SIGKILL); return 0; }\n")),
}


@pytest.mark.parametrize("hack", HACKS)
def test_only_the_right_text_counts(rig: Rig, hack: str) -> None:
    asked, source = HACKS[hack]
    score = rig.score(rig.hand_in(asked, {asked.hidden["stdio"]["path"]: source}))
    assert (score.status, score.reward) == (ScoreStatus.OK, 0.0), rig.evidence(score)


def test_right_programs_pass_in_both_languages(rig: Rig) -> None:
    for asked, source in ((PYTHON, "print(int(input()) * 2)\n"), (C, C_RIGHT)):
        score = rig.score(rig.hand_in(asked, {asked.hidden["stdio"]["path"]: source}))
        assert score.reward == 1.0, rig.evidence(score)
        assert score.components == {"tests_passed": 1.0, "compiles": 1.0, "static": 1.0, "tampering": 0.0}
    assert rig.score(rig.hand_in(C, {})).reward == 0.0


def test_warnings_of_the_compiler_cost_a_part_of_a_component(rig: Rig) -> None:
    score = rig.score(rig.hand_in(C, {"solution.c": C_RIGHT.replace("int n;", "int n, unused;")}))
    assert score.reward == 1.0 and 0.9 < score.components["static"] < 0.91


@pytest.mark.parametrize(("got", "want", "same"), [
    ("1 2\n", "1  2 \n\n", True), ("1\n2", "1 2", True), ("YES", "Yes", False), ("1", "1 1", False),
    ("0.3333333", "0.33333333333", True), ("0.33", "0.3333", False), ("nan", "1.0", False), ("inf", "1.0", False),
    ("2.0", "2", False), ("3", "3.0", True), ("1000000001", "1000000000", False), ("1_0.0", "10.0", False)])
def test_words_are_compared_and_only_fractions_have_a_tolerance(got: str, want: str, same: bool) -> None:
    assert same_text(got, want, 1e-6) is same


RIGHT = ("for _ in range(int(input())):\n    n, m, k = map(int, input().split())\n    far = max(n, m)\n"
         "    print(-1 if far > k else k - 1 if (n + m) % 2 else k - 2 if (far + k) % 2 else k)\n")


def test_a_right_program_passes_all_tests_of_a_contest_and_a_wrong_one_does_not(
        rig: Rig, cases: Callable[[str], Path]) -> None:
    asked = load_tasks("contest", cases("coding/nemo-gym-code_gen/example-3.jsonl"))[1]
    score = rig.score(rig.hand_in(asked, {"solution.py": RIGHT}))
    assert (score.reward, rig.evidence(score)["details"]["total"]) == (1.0, 97)
    score = rig.score(rig.hand_in(asked, {"solution.py": RIGHT.replace("k - 2", "k")}))
    assert score.reward == 0.0 and score.components["tests_passed"] < 1.0
