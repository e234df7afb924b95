"""Answers that public reports found misjudged by graders of mathematics, each with its report; and ways of writing that
public graders are tested with."""

from __future__ import annotations

import importlib.util
from fractions import Fraction

import pytest

from schemas.enums import ScoreStatus
from schemas.errors import VerifierError
from tests.conftest import require_real
from tests.verifiers.test_math import QUICK, judged
from verifiers.number_words import number_in_words

REPORTS = [
    ("huggingface/Math-Verify#1", "2/3", "\\frac{2}{3}", 1),
    ("huggingface/Math-Verify#2", "\\frac{1}{12}", "0.0833333333333333", 1),
    ("huggingface/Math-Verify#2", "(1,\\frac{9}{2})", "(1,4.5)", 1),
    ("huggingface/Math-Verify#2", "\\tan^2(y)+1", "\\sec^2(y)", 1),
    ("huggingface/Math-Verify#2", "34x+45y-20z+100=0", "-34x-45y+20z-100=0", 1),
    ("huggingface/Math-Verify#2", "33.3", "\\frac{100}{3}", 0),
    ("huggingface/Math-Verify#14", "\\frac{1}{2004!}", "\\frac{1}{2006!}", 0),
    ("huggingface/Math-Verify#14", "\\frac{1}{2^{99}}", "\\frac{1}{2^{98}}", 0),
    ("huggingface/Math-Verify#14", "\\frac{2^{2005}+1}{3 \\cdot 2^{2006}}", "\\frac{1}{3 \\cdot 2^{2006}}", 0),
    ("huggingface/Math-Verify#14", "n=2, 3, 4", "n=1, 2, 3", 0),
    ("huggingface/Math-Verify#14", "D = (0, 1)", "D = (0, 1.5)", 0),
    ("huggingface/Math-Verify#14", "19, 46, \\text{ and } 82", "21, 36, and 82", 0),
    ("huggingface/Math-Verify#14", "\\pm 2021", "2021", 0),
    ("huggingface/Math-Verify#14", "12:00", "1:00", 0), ("huggingface/Math-Verify#14", "12:00", "12:00", 1),
    ("huggingface/Math-Verify#26", "2x+4y-3=0", "y = -1/2*x + 3/4", 1),
    ("huggingface/Math-Verify#37", "13", "\\text{13}", 1),
    ("huggingface/Math-Verify#40", "\\frac{x^2}{4}+\\frac{y^2}{3}=1", "\\frac{x^2}{16}+\\frac{y^2}{12}=1", 0),
    ("huggingface/Math-Verify#41", "4", "4\\sqrt(2)", 0),
    ("huggingface/Math-Verify#56", "\\left( 3, \\frac{\\pi}{2} \\right)", "(3, \\frac{2\\pi}{3})", 0),
    ("huggingface/Math-Verify#60", "3*x-1*y+13=0", "3x + 4y + 14=0", 0),
    ("huggingface/Math-Verify#64", "\\frac{1}{\\sqrt{n}}", "\\sqrt{1/n}", 1),
    ("huggingface/Math-Verify#64", "f(x) = 0", "\\forall x>0, f(x) = 0", 0),
    ("huggingface/Math-Verify#82", "1 - \\frac{1}{\\mathrm{e}}", "1 + \\frac{1}{\\mathrm{e}}", 0),
    ("modelscope/ms-swift#4541", "a=1 \\text{ or } a=-2", "a=-2, a=1", 1),
    ("THUDM/slime#2150", "1/2", "\\fbox{\\frac{1}{2}}", 1), ("OpenRLHF/OpenRLHF#1285", "42", "\\fbox{42", 0),
    ("iDiagoValeta/localOllamaRAG#208", "88.55", "$\\mathbf{88.55}$", 1),
    ("stanford-crfm/helm#4337", "72", "The answer is 72, in total, so the farmer earns that much.", 1),
    ("stanford-crfm/helm#4191", "926", "3,1415x926", 0), ("stanford-crfm/helm#4289", "5", "answer is 3 5", 0),
    ("jundot/omlx#3484", "72", "The total is 72 clips, altogether.", 1),
    ("open-compass/opencompass#2647", "9500", "\\boxed{$9{,}500}", 1),
    ("open-compass/opencompass#2647", "500", "\\boxed{$9{,}500}", 0),
    ("open-compass/opencompass#2343", "70000", "Josh's profit is $70,000.", 1),
    ("mbzuai-nlp/finchain#3", "13.2%", "The final value is 13.20%", 1)]
MORE = [
    ("7", "a" * 60 + "! 5", 0), ("5", "Donaudampfschifffahrtsgesellschaftskapit\u00e4n 5", 0),
    ("18", "eighteen", 1), ("42", "Forty-two.", 1), ("1205", "one thousand, two hundred and five", 1),
    ("2.5", "two and a half", 1), ("3/4", "three quarters", 1), ("-5", "minus five", 1), ("7", "seven apples", 1),
    ("three", "3", 1), ("50%", "fifty percent", 1), ("18", "eighty", 0), ("18", "eighteen or nineteen", 0),
    ("7", "five and seven", 0), ("7", "seven eight", 0), ("14", "two times seven", 0), ("7", "seven dozen", 0),
    ("5", "\\boxed{\\boxed{5}}", 1), ("5", "\\boxed 5", 1), ("5", "\\boxed{5} \\boxed{6}", 0),
    ("5", "\\boxed{\\boxed{5} 6}", 0), ("[0,1)", "[0;1[", 1), ("(0,1)", "]0,1[", 1), ("[0,1)", "[0,1]", 0),
    ("\\{1,3\\} \\cup \\{2,4\\}", "\\{1,2,3,4\\}", 1), ("\\{1,3\\} \\cup \\{2,4\\}", "\\{1,2,3\\}", 0),
    ("4", "\\{1,2,3,4\\}", 0), ("\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}", "[[1,2],[3,4]]", 1),
    ("\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}", "[[1,2],[4,3]]", 0), ("3000", "3 000", 1), ("3000", "3\\,000", 1),
    ("3000", "3 0 0 0", 0), ("12", "1 2", 0), ("204", "٢٠٤", 1), ("\\emptyset", "\\varnothing", 1),
    ("2i", "(1+i)^2", 1), ("e^{i\\pi}", "-1", 1), ("1+i", "1-i", 0), ("\\ln x^2", "2\\ln |x|", 1),
    ("\\sqrt{x^2}", "x", 0), ("\\frac{x}{2^{99}}", "\\frac{x}{2^{98}}", 0), ("x^2", "x^2+\\frac{1}{10^{50}}", 0),
    ("[0,\\frac{1}{2^{99}}]", "[0,\\frac{1}{2^{98}}]", 0), ("0, \\frac{1}{2^{99}}", "0, \\frac{1}{2^{98}}", 0),
    ("28\\%", "28 pct", 1), ("28\\%", "28 percentage", 1), ("2", "AZYUK2A", 0), ("2", "A2", 0),
    ("9", "Answer \\[ \n 9 \n \\]", 1), ("9", "Answer $$\n9\n$$\n10", 0),
    ("\\boxed{\\{-1\\} \\cup [0,7)}", "\\{-1\\} \\cup [0,7)", 1), ("\\boxed{6 \\text{ and } 8}", "\\boxed{8, 6}", 1),
    ("\\boxed{1} and \\boxed{-2}", "$\\boxed{-2,1}$", 1), ("(2, 2), (6, 2)", "\\boxed{(2, 2)} and \\boxed{(6, 2)}", 1),
    ("(2, 2), (6, 2)", "\\boxed{(2, 2)} and \\boxed{(2, 6)}", 0), ("1, 2", "\\boxed{1} \\boxed{2} \\boxed{3}", 0),
    ("125 miles", "$\\boxed{125\\textnormal{ miles}}.$", 1),
    ("11111111100", "$\\boxed{11,\\! 111,\\! 111,\\! 100}$", 1),
    ("x >= 5", "Therefore $x \\geq 5$ is the solution.", 1), ("x < 3", "We find that $x \\lt 3$.", 1),
    ("x \\neq 5", "The solution is $x != 5$", 1), ("x < 3", "We find that $x < 3$ or $x > 7$.", 0),
    ("\\begin{pmatrix}1 & 0 \\\\ 0 & 1\\end{pmatrix}",
     "It is $\\left[\\begin{array}{cc}1 & 0\\\\0 & 1\\end{array}\\right]$.", 1),
    ("34", "Final Answer: The largest $n$ is 34.", 1), ("34", "The largest $n$ is 34 n.", 0),
    ("(11,7)or(7,11)", "(7,11), (11,7)", 1), ("(5, 8), (8, 5)", "(x, y) = (5, 8) \\text{ and } (8, 5)", 1),
    ("\\boxed{x = -5, p = 2}", "-5, 2", 1),
    ("5", "2+3=5", 1), ("5", "2+2=5", 0), ("5", "5=5", 0), ("72", "72, or so", 0)]


@pytest.fixture(autouse=True)
def library() -> None:
    if importlib.util.find_spec("math_verify") is None:
        require_real("math-verify", "the extra `math` is not installed")


@pytest.mark.parametrize(("report", "want", "answer", "reward"), REPORTS)
def test_reported_answers(report: str, want: str, answer: str, reward: int) -> None:
    score = judged(want, answer)
    assert (score.status, score.reward) == (ScoreStatus.OK, reward), score.evidence


@pytest.mark.parametrize(("want", "answer", "reward"), MORE)
def test_more_ways_of_writing(want: str, answer: str, reward: int) -> None:
    score = judged(want, answer)
    assert (score.status, score.reward) == (ScoreStatus.OK, reward), score.evidence


def test_what_cannot_be_worked_out_is_no_zero() -> None:
    for answer in ("100000000!", "\\prod_{k=1}^{10^8} k"):
        score = judged("18", answer, verifier=QUICK)
        assert (score.status, score.reward) == (ScoreStatus.VERIFIER_ERROR, None)
    with pytest.raises(VerifierError, match="no mathematics"):
        judged("1, 2, \\ldots, n", "1, 3, 5")


@pytest.mark.parametrize(("text", "value"), [
    ("zero", 0), ("a hundred and one", 101), ("nine hundred ninety-nine trillion", 999 * 10**12), ("half", "1/2"),
    ("one million and five", 1_000_005), ("zero point zero five", "1/20"), ("one and three quarters", "7/4"),
    ("twelve hundred", 1200), ("negative two thirds", "-2/3"), ("a", None), ("", None), ("hundred", None),
    ("one hundred and", None), ("one hundred, five", None), ("five thousand six thousand", None), ("-", None),
    ("twenty fifteen", None), ("five six", None), ("a third half", None), ("one hundred zero", None), ("five!", None),
    ("two and five", None), ("half half", None), ("one " * 100, None)])
def test_numbers_in_words(text: str, value: int | str | None) -> None:
    assert number_in_words(text) == (None if value is None else Fraction(value))
