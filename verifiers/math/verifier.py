"""The verifier of kind `math`: one final answer, the same as the wanted one; 1 or 0.

Plain numbers are compared exactly here; everything else by Math-Verify in a process that is killed at its deadline.
`task.hidden`: `want` (as a person writes it: a number, LaTeX, a list, an interval, a word), `units` (further units that
an answer may be given in). A comparison that does not end is the verifier's error and never a 0.

An answer may carry a unit: the wanted one's; if that has none, any noun, but no unit of measure where the task speaks
of others of its kind. `%` means a hundredth, but where the task asks for percent, 50 and 50 % are the same answer.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from fractions import Fraction
from typing import Any

import msgspec

from schemas.enums import ScoreStatus
from schemas.errors import UnavailableError, VerifierError
from tasks.task import Submission, Task
from verifiers.digest import code_digest
from verifiers.killable import DeadlineError, DiedError, Killable, versions
from verifiers.math import exact, notation
from verifiers.math.final import NoFinal, final_answer, only_formula
from verifiers.verifier import Context, Score

MODULES = ("verifiers.killable", "verifiers.number_words", "verifiers.math", *(f"verifiers.math.{name}" for name in (
    "compare", "exact", "final", "notation", "numeric", "verifier")))
_BOXED = re.compile(r"\\(?:boxed|fbox)\b")
_BASES = {2: "binary", 8: "octal", 16: "hexadecimal"}
DEADLINE_S = 3.0
"""Of processor time, for one comparison; a usual one takes a tenth."""
MEMORY_MB = 1024


class MathHidden(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    want: str
    units: list[str] = []


@functools.cache
def _comparer(deadline_s: float) -> Killable:
    return Killable("verifiers.math.compare:compare", deadline_s=deadline_s, memory_mb=MEMORY_MB)


class MathVerifier:
    name = "math"

    def __init__(self, deadline_s: float = DEADLINE_S) -> None:
        self.deadline_s = deadline_s

    @property
    def digest(self) -> str:
        return code_digest(MODULES, {"deadline_s": self.deadline_s, **versions("math-verify", "sympy")})

    def verify(self, submission: Submission, task: Task, context: Context) -> Score:
        hidden, want = _wanted(task)
        evidence: dict[str, Any] = {"want": hidden.want, "answer": submission.answer}
        try:
            final = final_answer(submission.answer, bool(want.items))
            evidence["final"] = final
            got = _written(final, want, hidden)
        except (NoFinal, notation.Unclear) as wrong:
            return _score(False, {**evidence, "why": str(wrong)})
        if why := _foreign_unit(want, got, hidden, task):
            return _score(False, {**evidence, "why": why})
        try:
            same, more = self._compare(want, got, task)
        except (DeadlineError, DiedError) as wrong:
            what = "the comparison did not end before its deadline" if isinstance(wrong, DeadlineError) else \
                f"the comparison broke within {MEMORY_MB} MB of memory"
            return Score(status=ScoreStatus.VERIFIER_ERROR,
                         evidence={**evidence, "what": what, "deadline_s": self.deadline_s})
        return _score(same, {**evidence, **more})

    def _compare(self, want: notation.Written, got: notation.Written, task: Task) -> tuple[bool, dict[str, Any]]:
        """Verdict, and how each side was read."""
        if (same := _same_radix(want.plain, got.plain, task.prompt)) is not None:
            return same, {"read_want": want.plain, "read_answer": got.plain, "why": _why(same)}
        if want.is_words or (got.is_words and want.number is not None):
            same = got.plain.strip("() ").casefold() == want.plain.strip("() ").casefold()
            return same, {"read_want": want.plain, "read_answer": got.plain, "why": _why(same)}
        if want.number is not None and got.number is not None:
            percents = _asks_percent(task)
            wanted, answered = _value(want, percents), _value(got, percents)
            same = exact.agrees(answered, wanted.value)
            return same, {"read_want": str(wanted.value), "read_answer": str(answered.value), "why": _why(same)}
        return self._by_library(want, got, task)

    def _by_library(self, want: notation.Written, got: notation.Written, task: Task) -> tuple[bool, dict[str, Any]]:
        if _letters(got) == _letters(want):
            return True, {"read_want": want.plain, "read_answer": got.plain,
                          "why": "the wanted answer, letter by letter"}
        if importlib.util.find_spec("math_verify") is None:
            raise UnavailableError("symbolic answers are compared by the package math-verify",
                                   hint="pip install 'headrace[math]'")
        decimal = got.latex if got.number and got.number.unit else ""
        read = _comparer(self.deadline_s).call(want=list(want.items) or [_latex(want)],
                                               got=list(got.items) or [_latex(got)], decimal=decimal)
        if read.get("unread") == "want":
            raise VerifierError("the wanted answer is no mathematics that can be read", where=f"task {task.task_id}",
                                value=want.plain)
        why = "no mathematics that can be read" if "unread" in read else _why(read["same"])
        return read["same"], {"read_want": read["want"], "read_answer": read["got"], "why": why}


def _score(right: bool, evidence: dict[str, Any]) -> Score:
    return Score(reward=float(right), components={"correct": float(right), "answered": float("final" in evidence)},
                 evidence=evidence)


def _written(final: str, want: notation.Written, hidden: MathHidden) -> notation.Written:
    """The answer; of a sentence that is no quantity and holds one formula, that formula."""
    got = notation.write(final, bool(want.items), beside=hidden.want)
    formula = only_formula(final)
    if formula is None or got.number is not None or got.items or want.is_words:
        return got
    return notation.write(formula, beside=hidden.want)


def _wanted(task: Task) -> tuple[MathHidden, notation.Written]:
    where = f"task {task.task_id}"
    try:
        hidden = msgspec.convert(task.hidden, MathHidden)
        text = final_answer(hidden.want, listed=True) if _BOXED.search(hidden.want) else hidden.want
        return hidden, notation.write(text, notation.is_list(notation.clean(text)), beside=text)
    except NoFinal as wrong:
        raise VerifierError(f"the wanted answer is none: {wrong}", where=where, value=hidden.want[:200]) from None
    except msgspec.ValidationError as wrong:
        raise VerifierError(f"the task's hidden part is wrong: {wrong}", where=where) from None


def _asks_percent(task: Task) -> bool:
    return bool(re.search(r"%|\bper ?cent", task.prompt, re.IGNORECASE))


def _same_radix(want: str, got: str, prompt: str) -> bool | None:
    """Of numerals with a base; one without it is in the base that the task names. None: no side has one."""
    wanted, answered = notation.radix(want), notation.radix(got)
    if wanted is None and answered is None:
        return None
    if wanted is not None and answered is not None:
        return wanted == answered
    (digits, base), other = (wanted, got) if wanted else (answered or ("", 0), want)
    named = base == 10 or re.search(rf"\bbase[- $]*{base}\b|_ ?\{{?{base}\b", prompt, re.IGNORECASE) or (
        re.search(_BASES.get(base, "(?!)"), prompt, re.IGNORECASE))
    return bool(named) and other.upper() == digits


def _foreign_unit(want: notation.Written, got: notation.Written, hidden: MathHidden, task: Task) -> str:
    """Why the unit is not the wanted one; empty: it is, or there is none."""
    if not got.unit or got.unit == want.unit or got.unit in map(notation.unit_of, hidden.units):
        return ""
    if want.unit:
        return f"the unit `{got.unit}` is not `{want.unit}`"
    asked = _units_of(task.prompt)
    base = notation.base_of(got.unit)
    if base not in asked and any(base in family and family & asked for family in notation.FAMILIES):
        return f"the task speaks of other units than `{got.unit}`"
    return ""


def _units_of(prompt: str) -> set[str]:
    """Units that a text names; the shortest abbreviations, which are words too, only behind a number."""
    words = [*re.findall(r"[$€£¥°¢]|\b(?!in\b)[A-Za-z]{2,}", prompt), *re.findall(r"\d ?([A-Za-z]{1,2})\b", prompt)]
    return {notation.CURRENCIES.get(word) or notation.unit_of(word) for word in words}


def _value(one: notation.Written, asks_percent: bool) -> exact.Number:
    """The number with its percent sign, unless percents were asked for: then the sign says nothing, and a number
    without it beside a wanted percentage counts percents."""
    assert one.number is not None
    if not one.percent or asks_percent:
        return one.number
    unit = one.number.unit
    return exact.Number(one.number.value / 100, unit / 100 if unit else None, one.number.digits)


def _latex(one: notation.Written) -> str:
    """With the number's scale and percent sign worked in."""
    if one.number is None:
        return one.latex
    value = one.number.value * (Fraction(1, 100) if one.percent else 1)
    return f"{value.numerator}" if value.denominator == 1 else f"\\frac{{{value.numerator}}}{{{value.denominator}}}"


def _letters(one: notation.Written) -> str:
    """Without the spaces that say nothing: 1 2 is not 12."""
    return re.sub(r"(?<!\d) | (?!\d)", "", one.plain)


def _why(same: bool) -> str:
    return "the wanted answer" if same else "another answer"
