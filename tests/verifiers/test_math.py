"""Answers to mathematical problems: the same value in another writing is right; hedges, lists, other units are not;
what hangs the library is the verifier's error, and the next answer is judged as ever."""

from __future__ import annotations

import contextlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.enums import ScoreStatus
from schemas.errors import VerifierError
from tasks.importers import load_tasks
from tasks.sets import builtin_sets
from tasks.task import Submission, Task
from tests.conftest import require_real
from tests.verifiers.rig import Rig
from verifiers.math import MathVerifier
from verifiers.verifier import Score


@pytest.fixture(autouse=True)
def library() -> None:
    if importlib.util.find_spec("math_verify") is None:
        require_real("math-verify", "the extra `math` is not installed")


QUICK = MathVerifier(deadline_s=1.0)


def judged(want: str, answer: str | None, prompt: str = "", verifier: MathVerifier | None = None, **more: Any) -> Score:
    task = Task(task_id="t", kind="math", set="s", prompt=prompt or "How much?", hidden={"want": want, **more})
    submission = Submission(task_id="t", task_digest="", workspace=None, answer=answer)
    return (verifier or MathVerifier()).verify(submission, task, None)  # type: ignore[arg-type]


RIGHT = [
    ('50', '50%', 'What percent?'), ('50%', '50', 'What percent?'), ('18', '18 m', 'How many meters?'),
    ('1', '1', ''), ('18', '18', ''), ('18', '18.0', ''), ('18', '$18$', ''), ('18', '\\boxed{18}', ''),
    ('18', '$\\boxed{18}$.', ''), ('18', '#### 18', ''), ('18', 'blah 3+4\n#### 18', ''),
    ('18', 'The answer is 18.', ''), ('18', '**Answer:** 18', ''), ('18', 'x = 18', ''), ('18', '18 clips', ''),
    ('1234', '1,234', ''), ('1234', '1234', ''), ('1/3', '0.333333', ''), ('1/3', '\\frac13', ''),
    ('3.5', '3 1/2', ''), ('3.5', '3½', ''), ('3.5', '7/2', ''), ('\\frac{7}{2}', '3.5', ''), ('50%', '0.5', ''),
    ('50%', '50 percent', ''), ('\\sqrt{2}/2', '1/sqrt(2)', ''), ('\\sqrt{2}', '1.414214', ''),
    ('[1,2)', '[1, 2)', ''), ('\\{1,2\\}', '2, 1', ''), ('\\{1,2\\}', '{2,1}', ''), ('1, 2', 'x=2 or x=1', ''),
    ('x=1 or x=2', '1, 2', ''), ('(1,2)', '(1, 2)', ''), ('y=2x+1', '2x+1=y', ''), ('y=2x+1', 'y = 1 + 2x', ''),
    ('(x+1)^2', 'x^2+2x+1', ''), ('(x+1)^2', 'x^2 + 2*x + 1', ''), ('2^{10}', '1024', ''), ('1000', '1e3', ''),
    ('5 cm', '5cm', ''), ('5 cm', '5 centimeters', ''), ('5 cm^2', '5 square centimeters', ''),
    ('60 km/h', '60 kilometers per hour', ''), ('-5', '−5', ''), ('-5', '- 5', ''), ('-5', 'negative 5', ''),
    ('(-\\infty,2)\\cup(3,\\infty)', '(-∞, 2) ∪ (3, inf)', ''), ('\\pi', '3.14159265', ''), ('2\\pi', '2π', ''),
    ('x>2', 'x > 2', ''),
    ('\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}', '\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}', ''),
    ('Tuesday', 'tuesday', ''), ('A', '(A)', ''), ('1+i', 'i+1', ''), ('90^\\circ', '90°', ''),
    ('90', '90 degrees', ''), ('1.5 million', '1500000', ''), ('120', '5!', ''),
    ('3\\pm\\sqrt{2}', '3 ± sqrt(2)', ''), ('\\frac{x}{2}', 'x/2', ''), ('x^{10}', 'x^10', ''),
    ('72', 'There are 72 clips.', ''), ('72', 'So, the total is 72', ''), ('$18', '$18', ''), ('18', '\\$18', ''),
    ('18', '$18.00', ''), ('0', '0', ''), ('0', '-0', ''), ('0.5', '.5', ''), ('\\text{even}', 'even', ''),
    ('3:4', '3:4', ''), ('\\frac{\\pi}{4}', 'pi/4', ''), ('xy', 'yx', ''), ('\\log 2', 'log(2)', ''),
    ('5x', '5x', ''), ('no', 'No', ''),
    ('12', '12 apples and nothing else', ''), ('\\frac{3}{4}', '0.75', ''), ('0.75', '3/4', ''), ('75\\%', '75%', ''),
    ('75\\%', '3/4', ''), ('\\$5.50', '5.50 dollars', ''), ('5.50', '$5.5', ''), ('x=2,y=3', 'x = 2, y = 3', ''),
    ('x=2,y=3', 'y=3, x=2', ''), ('(2,3)', '(2, 3)', ''), ('\\left(\\frac{1}{2}, 3\\right)', '(0.5,3)', ''),
    ('2\\sqrt{3}', '2√3', ''), ('2\\sqrt{3}', '\\sqrt{12}', ''), ('\\frac{2\\sqrt{3}}{3}', '2/sqrt(3)', ''),
    ('e^2', 'e^2', ''), ('e', '2.71828183', ''), ('\\ln 2', 'ln(2)', ''), ('10^{-3}', '0.001', ''),
    ('10^{-3}', '1e-3', ''), ('1.2\\times10^{5}', '120000', ''), ('120000', '1.2 x 10^5', ''),
    ('120000', '1.2 × 10^5', ''), ('120000', '1.2*10^5', ''), ('\\emptyset', '∅', ''),
    ('(-\\infty,3]', '(-inf, 3]', ''), ('x \\le 3', 'x<=3', ''), ('x \\le 3', '(-\\infty,3]', ''),
    ('[-1,1]', '-1 <= x <= 1', ''), ('\\mathbb{R}', '\\mathbb{R}', ''), ('all real numbers', 'all real numbers', ''),
    ('3:2', '3:2', ''), ('3 to 2', '3 to 2', ''), ('12:30', '12:30', ''), ('2024-01-01', '2024-01-01', ''),
    ('yes', 'Yes.', ''), ('x^2+3x', 'x(x+3)', ''), ('\\frac{x+1}{2}', '(x+1)/2', ''), ('f(x)=2x', '2x', ''),
    ('\\sin^2 x', '1-\\cos^2 x', ''), ('\\pm 2', '\\pm2', ''), ('\\pm 2', '2, -2', ''), ('2,-2', '±2', ''),
    ('42', 'The final answer is: $\\boxed{42}$', ''), ('42', 'Final Answer: 42', ''),
    ('42', 'So the answer is **42**.', ''), ('1,000,000', '1000000', ''), ('1000000', '1 million', ''),
    ('45', '45°', ''), ('45^\\circ', '45', ''), ('3', '3.0000', ''), ('-1/2', '-0.5', ''),
    ('-\\frac{1}{2}', '\\frac{-1}{2}', ''), ('-\\frac12', '-1/2', ''), ('1\\frac{1}{2}', '1.5', ''),
    ('1\\frac{1}{2}', '1 1/2', ''), ('1\\frac{1}{2}', '3/2', ''), ('0.\\overline{3}', '1/3', ''),
    ('2:30 PM', '2:30 pm', ''), ('\\text{Monday}', 'Monday', ''), ('\\text{(B)}', 'B', ''),
    ('B', '\\boxed{\\text{B}}', ''), ('5\\text{ cm}', '5', ''), ('5\\,\\mathrm{cm}', '5 cm', ''),
    ('$\\frac{1}{3}$', '1/3', ''), ('n(n+1)/2', '\\frac{n^2+n}{2}', ''), ('2^{n}', '2^n', ''), ('\\log_2 8', '3', ''),
    ('y = -x + 1', 'x + y = 1', ''), ('18', '= 18', ''), ('18', '18\n', ''), ('18', ' 18 . ', ''),
    ('(2,\\infty)', 'x>2', ''), ('(2,3)', '2<x<3', ''), ('1.2\\overline{3}', '37/30', '')]
WRONG: list[tuple[str, Any, str]] = [
    ('18', '18 km', 'How many meters?'), ('18', '18 cents', 'How many dollars?'), ('18', '€18', 'Pay in $'),
    ('50%', '0.5', 'What percent?'), ('50', '0.5', 'What percent?'), ('50', '5000%', 'What percent?'),
    ('18', '17', ''), ('18', None, ''), ('18', '', ''), ('18', '17 or 18', ''), ('18', '17, 18', ''),
    ('18', 'about 18', ''), ('18', '~18', ''), ('18', '≈18', ''), ('18', '18?', ''),
    ('18', '\\boxed{17} \\boxed{18}', ''), ('18', '\\boxed{18} or 17', ''), ('18', '#### 17\n#### 18', ''),
    ('18', '18 is wrong', ''), ('18', 'not 18', ''), ('18', 'less than 18', ''), ('18', '17-18', ''),
    ('18', '18...20', ''), ('18', '-18', ''), ('18', '(18)(2)', ''), ('18', '1818', ''), ('18', '18.0000001', ''),
    ('18', '17.9999999', ''), ('18', '18%', ''), ('50%', '50', ''), ('50', '50%', ''), ('18', '{18}, 17', ''),
    ('18', '{17,18}', ''), ('18', '[17,19]', ''), ('18', 'x', ''), ('18', 'x=18=17', ''), ('18', '17=18', ''),
    ('18', '1+1=18', ''), ('18', '18 dozen', ''), ('18', '18 thousand', ''), ('18', 'half of 18', ''),
    ('18', '18 squared', ''), ('18', 'twice 18', ''), ('5 cm', '5 m', ''), ('5 cm', '5 cm^2', ''),
    ('1/3', '0.333', ''), ('1/3', '0.3333334', ''), ('\\sqrt2', '1.414', ''), ('[1,2)', '(1,2)', ''),
    ('[1,2)', '[1,2]', ''), ('(1,2)', '(2,1)', ''), ('\\{1,2\\}', '1', ''), ('\\{1,2\\}', '1,2,3', ''),
    ('\\{1,2\\}', '1,1,2', ''), ('1, 2', '1 or 3', ''), ('y=2x+1', 'y=2x', ''), ('x>2', 'x>=2', ''),
    ('(x+1)^2', 'x^2+1', ''), ('18', 'NaN', ''), ('18', 'inf', ''), ('18', '\\infty', ''),
    ('18', 'The question asks 18, 24, 48', ''), ('18', '\n'.join(map(str, range(100))), ''), ('18', '18' * 300, ''),
    ('\\pi', '3.14', ''), ('\\pi', '22/7', ''), ('A', 'B', ''), ('A', 'A or B', ''), ('A', 'ABCD', ''),
    ('Tuesday', 'Tuesday or Wednesday', ''), ('18', '1/0', ''), ('18', '18/1/1 18', ''), ('18', '\\boxed{18', ''),
    ('18', '\\boxed{}', ''), ('18', '####', ''), ('18', 'answer:', ''), ('18', '18!', ''), ('120', '5! or 6!', ''),
    ('x=3', 'y=3', ''), ('18', '\\text{17 or 18}', ''), ('18', '18 \\text{ or } 17', ''),
    ('18', '17; 18', ''), ('18', '17|18', ''), ('18', '17/18', ''), ('18', '17\n18', ''), ('18', '17 18', ''),
    ('100', '{100,200}', ''), ('0', '0.0000001', ''), ('0.0000001', '0', ''), ('18', '18 minus 1', ''),
    ('18', '$17-$18', ''), ('18', 'a=18, b=17', ''), ('18', '\\input{x}', ''),
    ('18', "__import__('os').system('true')", ''), ('18', 'x if x else 18', ''),
    ('3\\pm\\sqrt2', '3+\\sqrt2', ''), ('\\pm 2', '2', ''), ('2', '±2', ''), ('x>2', 'x<2', ''),
    ('x>2', '[2,oo)', ''), ('(2,3)', 'x=2', ''), ('0.\\overline{3}', '0.3', ''), ('x', 'y', ''),
    ('(x+1)(x-1)', '(x+1),(x-1)', ''), ('1.2', '1.2 x 10^5', ''), ('x=1', '1=1', ''), ('x=1', 'x=x', ''),
    ('y=2x+1', '0=0', ''), ('x+1', 'x+1=0', ''), ('\\{1,2,3\\}', '\\{1,\\dots,3\\}', ''),
    ('[0,1]', '[0,1] or [0,2]', ''), ('[0,1]', '[0,2]', ''), ('3', '\\max(3,4)', ''), ('B', 'answer is B, not A', ''),
    ('B', 'Both A and B', ''), ('18', 'True', ''), ('18', '\\boxed{18} \\boxed{18.5}', ''), ('18', '18 = 18', ''),
    ('18', 'n = 18 m', ''), ('0.5', '1/2 or 0.5', ''), ('18', '18 x y', ''), ('18', '18 xy = 18', ''),
    ('18', 'two times 18', ''), ('18', '18 plus 1', ''), ('18', '\\boxed{17}\n#### 18 or 17', ''),
    ('18', 'answer: 17\nanswer: 18', ''), ('18', '17 is wrong, the answer is 18 or so, maybe 19', '')]


def test_one_answer_in_another_writing_is_right() -> None:
    for want, answer, prompt in RIGHT:
        score = judged(want, answer, prompt)
        assert score.reward == 1.0, (want, answer, score.evidence)


def test_another_answer_or_several_are_wrong_and_the_evidence_says_why() -> None:
    for want, answer, prompt in WRONG:
        score = judged(want, answer, prompt)
        assert (score.status, score.reward) == (ScoreStatus.OK, 0.0), (want, answer, score.evidence)
        assert score.evidence["why"] not in ("", "the wanted answer"), (want, answer)
        assert score.evidence["want"] == want and score.evidence["answer"] == answer


@pytest.mark.parametrize(("want", "answer"), [
    ("18", "9^{9^{9^{9}}}"), ("18", "((9!)!)!"), ("18", "1e999999999"), ("(x+1)^2", "(x+1)^{100000}")])
def test_what_hangs_the_library_is_no_zero_and_the_next_answer_is_judged(want: str, answer: str) -> None:
    score = judged(want, answer, verifier=QUICK)
    assert (score.status, score.reward) == (ScoreStatus.VERIFIER_ERROR, None)
    assert "deadline" in score.evidence["what"] and score.evidence["deadline_s"] == 1.0
    assert score.evidence["answer"] == answer
    assert judged("x^2-1", "(x-1)(x+1)").reward == 1.0


def test_a_given_unit_counts_and_a_task_may_allow_more() -> None:
    assert judged("5 cm", "50 mm").reward == 0.0 and judged("5 cm", "5 dollars").reward == 0.0
    assert judged("5 cm", "5 mm", units=["mm"]).reward == 1.0
    assert judged("5", "5 m", "What is it in all, in Ann's house?").reward == 1.0
    assert judged("5", "5 m", "A pole of 500 cm, how long is it?").reward == 0.0
    assert judged("5", "5 clips").reward == judged("5", "5 clips in total").reward == 1.0


@pytest.mark.parametrize(("want", "answer", "prompt", "reward"), [
    ("10000", "10⁴", "", 1), ("104", "10⁴", "", 0), ("10^{-5}", "1 × 10⁻⁵", "", 1), ("102", "10₂", "", 0),
    ("1010_2", "1010₂", "", 1), ("1010_2", "1010_{2}", "", 1), ("1010_2", "1010_3", "", 0),
    ("1010_2", "1010", "Write ten in base 2.", 1), ("1010_2", "1010", "Write ten in binary.", 1),
    ("1010_2", "1010", "How many?", 0), ("1010", "1010_2", "Ten in base $2$?", 1), ("10", "10_2", "", 0),
    ("\\mathbb{R}", "All real numbers.", "", 1), ("(-\\infty,\\infty)", "all reals", "", 1),
    ("5", "no solution", "", 0),
    ("\\emptyset", "no solution", "", 1), ("\\{\\}", "No solutions", "", 1), ("no solution", "x=3", "", 0),
    ("1A_{16}", "1a_{16}", "", 1), ("x_1", "x₁", "", 1), ("3", "log₂ 8", "", 1), ("5 cm^2", "5 cm²", "", 1)])
def test_powers_bases_and_sets_in_words(want: str, answer: str, prompt: str, reward: float) -> None:
    assert judged(want, answer, prompt).reward == reward


def test_the_evidence_tells_a_person_how_both_sides_were_read() -> None:
    right = judged("\\frac{1}{2}", "Half of it, so\n\\boxed{0.5}").evidence
    assert (right["final"], right["read_want"], right["read_answer"], right["why"]) == (
        "0.5", "1/2", "1/2", "the wanted answer")
    wrong = judged("(x+1)^2", "x^2 + 1").evidence
    assert (wrong["read_want"], wrong["read_answer"], wrong["why"]) == (
        ["(x + 1)**2"], ["x**2 + 1"], "another answer")


@pytest.mark.parametrize("hidden", [
    {}, {"want": 18}, {"want": ""}, {"want": "\\frac{1}{"}, {"want": "18", "more": 1}])
def test_a_broken_task_is_the_verifiers_error(hidden: dict[str, Any]) -> None:
    task = Task(task_id="t", kind="math", set="s", prompt="p", hidden=hidden)
    submission = Submission(task_id="t", task_digest="", workspace=None, answer="x + 1")
    with pytest.raises(VerifierError):
        MathVerifier().verify(submission, task, None)  # type: ignore[arg-type]


@given(st.fractions(max_denominator=10**6), st.text(max_size=30) | st.text("0123456789.,-+/$%() or=x", max_size=12))
def test_no_text_breaks_the_reading_and_a_fraction_is_itself(value: Any, text: str) -> None:
    from verifiers.math import notation
    from verifiers.math.final import NoFinal, final_answer

    assert judged(str(value), str(value)).reward == 1.0 and judged(str(value), str(value + 1)).reward == 0.0
    with contextlib.suppress(NoFinal, notation.Unclear):
        notation.write(final_answer(text))


def test_the_built_in_problems_have_their_answers_and_slips(rig: Rig) -> None:
    tasks = builtin_sets()["math"]()
    assert len({task.task_id for task in tasks}) == len(tasks) == 36
    for task in tasks[::3]:
        assert rig.score(rig.play(task, task.reference)).reward == 1.0, task.prompt
        assert rig.score(rig.play(task, [])).reward == 0.0
        for name in ("wrong", "hedged"):
            assert rig.score(rig.play(task, task.variants[name])).reward == 0.0, (name, task.prompt)


def test_the_same_answer_gives_the_same_evidence_bytes(rig: Rig) -> None:
    task = Task(task_id="t", kind="math", set="s", prompt="p", hidden={"want": "{x+1, 2}"})
    scores = [rig.score(rig.hand_in(task, answer="2, 1 + x")) for _ in range(2)]
    assert scores[0].reward == 1.0 and scores[0].evidence == scores[1].evidence


def test_a_gsm8k_file_is_judged_by_its_final_numbers(tmp_path: Path, rig: Rig) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"question": "How many clips?", "answer": "48/2 = <<48/2=24>>24\n48+24 = 72\n#### 72"},
            {"question": "How many dollars?", "answer": "It is\n#### 1,234.50"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    one, two = load_tasks("gsm8k", path)
    assert [rig.score(rig.play(task, task.reference)).reward for task in (one, two)] == [1.0, 1.0]
    for answer, reward in [("72", 1.0), ("48 + 24 = 72\n#### 72", 1.0), ("72 clips", 1.0), ("\\boxed{72}", 1.0),
                           ("24", 0.0), ("24, 48, 72", 0.0), ("#### 24\n#### 72", 0.0), ("72 or 24", 0.0), ("", 0.0)]:
        assert rig.score(rig.hand_in(one, answer=answer)).reward == reward, answer
    for answer, reward in [("$1234.5", 1.0), ("1,234.50", 1.0), ("1234", 0.0), ("1.23450 thousand", 1.0)]:
        assert rig.score(rig.hand_in(two, answer=answer)).reward == reward, answer
