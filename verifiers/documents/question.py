"""One answer to a question about tables and text: spans, several spans, a computed number or a count, with a scale.

The answer is {"answer": value or list, "scale": "" | percent | thousand | million | billion}; a number's value is what
is written times its scale, so 1.4965 billion is 1,496.5 million, and a percentage may be answered as its fraction.
Components `exact` and `f1` (distinct words in common, in their order; a number is right or wrong). The reward is
`exact`; a passage, which nobody quotes to the letter, earns its `f1`, less what is repeated, if at least half is in
common. Another scale, a number that is not in the passage, or several answers to a question that has one are worth
nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from verifiers.documents.answer import BadAnswer, parse_answer
from verifiers.documents.hidden import Question
from verifiers.documents.locale import Locale
from verifiers.documents.numbers import SCALES, SYMBOLS, Reading, is_nil, read, same_currency
from verifiers.documents.texts import folded

ENGLISH = Locale()
ITEMS_LIMIT = 200
WORDS_LIMIT = 2000
PRINTED = Decimal("0.01")
"""Computed answers are given to two decimals; trailing zeros are not written."""
PASSAGE_WORDS = 9
"""Texts of at least so many words are passages; shorter ones are names, right or wrong."""
_ARTICLES = {"a", "an", "the"}


class Item(NamedTuple):
    """One answered or wanted value: a number (with scale), nil, or words."""

    reading: Reading | None
    words: tuple[str, ...]
    text: str

    def same(self, other: Item) -> bool:
        if self.reading and other.reading:
            return self.reading.value == other.reading.value and (
                not self.reading.symbol or not other.reading.symbol or same_currency(
                    self.reading.symbol, other.reading.symbol))
        return not self.reading and not other.reading and self.words == other.words and bool(
            self.words or is_nil(self.text) == is_nil(other.text))


class Overlap(NamedTuple):
    f1: float
    strict: float
    """Saying a word more often than it is wanted counts as saying words that are not."""


def judge(question: Question, text: str | None) -> tuple[dict[str, float], float, dict[str, Any]]:
    """Components, reward, and evidence, of the wanted answer that the given one comes closest to."""
    every = [_judge(msgspec.structs.replace(question, want=want), text) for want in (question.want, *question.also)]
    return max(every, key=lambda found: (found[1], found[0]["f1"]))


def _judge(question: Question, text: str | None) -> tuple[dict[str, float], float, dict[str, Any]]:
    wanted = _items([item for item in question.want if item.strip()], question.scale)
    evidence: dict[str, Any] = {"want": [_shown(item) for item in wanted], "scale": question.scale}
    try:
        values, scale = _answered(text)
        answered = _items(values, scale)
    except BadAnswer as wrong:
        return {"exact": 0.0, "f1": 0.0}, 0.0, {**evidence, "problem": str(wrong)}
    computed = question.type in ("arithmetic", "count")
    exact = _computed(question, wanted, answered) if computed else _spans(question, wanted, answered, scale)
    numeric = computed or all(item.reading or is_nil(item.text) for item in wanted)
    common = Overlap(exact, exact) if numeric or exact else overlap(wanted, answered, question.scale, scale)
    why = _refused(question, wanted, answered, scale, numeric)
    passage = sum(len(item.words) for item in wanted) >= PASSAGE_WORDS and not numeric
    earned = common.strict if passage and common.strict >= 0.5 else exact
    reward = 0.0 if why else earned
    if reward < 1.0 and not why:
        why = "not the wanted number" if numeric else "not the wanted words"
    return {"exact": exact, "f1": common.f1}, reward, {
        **evidence, "got": [_shown(item) for item in answered], "got_scale": scale, "why": why or "right"}


def _answered(text: str | None) -> tuple[list[Any], str]:
    """What was answered, and its scale. A bare text is one answer without a scale."""
    if text is not None and text.strip()[:1] not in ("{", "[", ""):
        if len(text) > 4000:
            raise BadAnswer("longer than one answer")
        return [text.strip().strip('"')], ""
    answer = parse_answer(text)
    if "answer" not in answer or not set(answer) <= {"answer", "scale"}:
        raise BadAnswer("not an object with the keys `answer` and `scale` alone")
    scale = answer.get("scale")
    scale = "" if scale is None else scale
    if not isinstance(scale, str) or scale.strip().lower() not in SCALES:
        raise BadAnswer("an unknown scale")
    values = answer["answer"] if isinstance(answer["answer"], list) else [answer["answer"]]
    if len(values) > ITEMS_LIMIT:
        raise BadAnswer(f"more than {ITEMS_LIMIT} answers")
    if any(not isinstance(value, str | Decimal) or isinstance(value, bool) for value in values if value is not None):
        raise BadAnswer("an answer that is neither text nor number")
    return [value for value in values if value is not None and str(value).strip()], scale.strip().lower()


def _items(values: list[Any], scale: str) -> list[Item]:
    return [_item(value, scale) for value in values]


def _item(value: Any, scale: str) -> Item:
    reading = read(value, ENGLISH, SYMBOLS, scales=True, words=True)
    text = f"{value:f}" if isinstance(value, Decimal) else str(value)
    if reading and scale and reading.scale not in ("", scale):
        reading = None  # 36 % million is no number.
    elif reading and scale and not reading.scale:
        reading = reading._replace(value=reading.value * SCALES[scale], unit=reading.unit * SCALES[scale])
    return Item(reading, words_of(text), text)


def _computed(question: Question, wanted: list[Item], answered: list[Item]) -> float:
    """One number, the same after its scale and to what was printed of it; a count is exact."""
    want, got = wanted[0].reading, answered[0].reading if len(answered) == 1 else None
    if len(wanted) != 1 or want is None or got is None:
        return 0.0
    if question.type == "count":
        return float(got.value == want.value)
    unit = min(want.unit, PRINTED * SCALES[question.scale])
    slack = Decimal(question.abs) if question.abs is not None else None
    return float(_close(got.value, want.value, unit / 2 if slack is None else slack, Decimal(question.rel)))


def _close(got: Decimal, want: Decimal, slack: Decimal, rel: Decimal) -> bool:
    """0 is no small number, and a small number is not 0; signs must agree."""
    if got == want:
        return True
    return got * want > 0 and abs(got - want) <= max(slack, rel * abs(want))


def _spans(question: Question, wanted: list[Item], answered: list[Item], scale: str) -> float:
    """The same values, each as often; texts under the same scale."""
    if len(wanted) != len(answered):
        return 0.0
    if scale != question.scale and not all(item.reading for item in wanted):
        return 0.0
    left = list(answered)
    for want in wanted:
        found = next((index for index, got in enumerate(left) if want.same(got)), None)
        if found is None:
            return 0.0
        del left[found]
    return 1.0


def _refused(question: Question, wanted: list[Item], answered: list[Item], scale: str, numeric: bool) -> str:
    """Why the answer is worth nothing whatever it has in common with the wanted one; empty: it is not refused."""
    if not answered:
        return "nothing was answered"
    if question.type != "multi-span" and len(answered) > len(wanted):
        return "several answers to a question that has one"
    if numeric:
        return ""
    if scale != question.scale:
        return "another scale"
    known = {word for item in wanted for word in item.words if word[0].isdigit() or word[0] == "-"}
    strange = [word for item in answered for word in item.words
               if (word[0].isdigit() or word[0] == "-") and word not in known]
    return f"a number that is not in the wanted text: {strange[0]}" if strange else ""


def words_of(text: str) -> tuple[str, ...]:
    """Words without case, punctuation and articles; a number is one word, in canonical form."""
    words = []
    for token in folded(text).split():
        reading = read(token.strip(".,;:") or token, ENGLISH, SYMBOLS, scales=True)
        if reading:
            words.append(_plain(reading.value))
        elif (word := re.sub(r"[^\w]|_", "", token)) and word not in _ARTICLES:
            words.append(word)
        if len(words) > WORDS_LIMIT:
            raise BadAnswer(f"more than {WORDS_LIMIT} words")
    return tuple(words)


def _plain(value: Decimal) -> str:
    return f"{value.normalize():f}"


def overlap(wanted: Sequence[Item], answered: Sequence[Item], scale: str = "", got_scale: str = "") -> Overlap:
    """Words in common, times the share of these that stand in the wanted order within each wanted text."""
    said = [word for item in answered for word in (*item.words, *([got_scale] if got_scale else []))]
    texts = [(*item.words, *([scale] if scale else [])) for item in wanted]
    often, times = Counter(word for text in texts for word in text), Counter(said)
    common = often.keys() & times.keys()
    if not common:
        return Overlap(0.0, 0.0)
    shared = sum((Counter(text) & times).total() for text in texts)
    hits = 2 * len(common) * sum(_in_order(text, said) for text in texts) / shared
    words = len(often) + len(times)
    return Overlap(hits / words, hits / (words + sum(max(0, times[word] - often[word]) for word in common)))


def _in_order(wanted: Sequence[str], said: Sequence[str]) -> int:
    """Length of the longest common subsequence, by bits: a zero is a step of it."""
    full = (1 << len(wanted)) - 1
    where: dict[str, int] = {}
    for index, word in enumerate(wanted):
        where[word] = where.get(word, 0) | 1 << index
    rows = full
    for word in said:
        step = rows & where.get(word, 0)
        rows = ((rows + step) | (rows - step)) & full
    return len(wanted) - rows.bit_count()


def _shown(item: Item) -> str:
    return f"{item.text} = {_plain(item.reading.value)}" if item.reading else item.text
