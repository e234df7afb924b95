"""Verdicts on answers about documents: typed fields of one JSON object, wrong and made-up fields punished.

reward = F1 over fields: 2 TP / (2 TP + FP + FN). A wrong value is both a false positive and a false negative, so each
wrong field costs itself; an extra field is a false positive, so dumping the page does not pay. Nothing answered is 0.
Component `consistency`: the share of the declared sums that hold among the *answered* amounts (not in the reward).

`task.hidden`: `fields`: {name: {`type`: text | money | date | id | number, `want`}}, `decimal` and `group` (how the
document writes numbers), `currencies` (symbols that may stand beside an amount), `sums`: [[part, ..., whole]], where a
list field counts as all its amounts. `want` is canonical text, a list of such, or null for what the document does not
say; then the answer must say null.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec

from schemas.errors import VerifierError
from tasks.task import Submission, Task
from verifiers import fields
from verifiers.digest import code_digest
from verifiers.verifier import Context, Score

MODULES = ("verifiers.documents", "verifiers.fields")
CENT = Decimal("0.01")
ABSENT = object()


class Field(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: str
    want: str | list[str] | None


class DocumentsHidden(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    fields: dict[str, Field]
    decimal: str = "."
    group: str = ","
    currencies: list[str] = []
    sums: list[list[str]] = []


class DocumentsVerifier:
    name = "documents"

    @property
    def digest(self) -> str:
        return code_digest(MODULES)

    def verify(self, submission: Submission, task: Task, context: Context) -> Score:
        """Components `fields` (the reward), `precision`, `recall`, and `consistency` where sums are declared."""
        hidden = _hidden(task)
        try:
            answer = fields.parse_answer(submission.answer)
        except fields.BadAnswer as wrong:
            return Score(reward=0.0, components={"fields": 0.0, "precision": 0.0, "recall": 0.0},
                         evidence={"problem": str(wrong), "answer": submission.answer})
        locale = fields.Locale(hidden.decimal, hidden.group, tuple(hidden.currencies))
        verdicts = {name: _judge(field, answer.get(name, ABSENT), locale) for name, field in hidden.fields.items()}
        extra = sorted(set(answer) - set(hidden.fields))
        components = _rates(list(verdicts.values()), extra=sum(answer[name] is not None for name in extra))
        if hidden.sums:
            components["consistency"] = _consistency(hidden, answer, locale)
        return Score(reward=components["fields"], components=components,
                     evidence={"verdicts": verdicts, "extra": extra, "answer": submission.answer})


def _hidden(task: Task) -> DocumentsHidden:
    try:
        hidden = msgspec.convert(task.hidden, DocumentsHidden)
    except msgspec.ValidationError as wrong:
        raise VerifierError(f"the task's hidden part is wrong: {wrong}", where=f"task {task.task_id}") from None
    unknown = {field.type for field in hidden.fields.values()} - set(fields.TYPES)
    unknown |= {name for line in hidden.sums for name in line} - set(hidden.fields)
    if unknown or not hidden.fields:
        raise VerifierError("a documents task names an unknown type or field", where=f"task {task.task_id}",
                            value=sorted(unknown))
    return hidden


def _judge(field: Field, got: Any, locale: fields.Locale) -> str:
    """`right`, `wrong`, `missing` (not answered), or `invented` (answered where the document says nothing)."""
    if got is ABSENT or (got is None and field.want is not None):
        return "missing"
    if field.want is None:
        return "right" if got is None else "invented"
    if isinstance(field.want, list):
        same = isinstance(got, list) and len(got) == len(field.want) and all(
            fields.matches(field.type, one, want, locale) for one, want in zip(got, field.want, strict=True))
        return "right" if same else "wrong"
    return "right" if fields.matches(field.type, got, field.want, locale) else "wrong"


def _rates(verdicts: list[str], extra: int) -> dict[str, float]:
    right, wrong = verdicts.count("right"), verdicts.count("wrong")
    false_positives = wrong + verdicts.count("invented") + extra
    false_negatives = wrong + verdicts.count("missing")
    if not right:
        return {"fields": 0.0, "precision": 0.0, "recall": 0.0}
    return {"fields": 2 * right / (2 * right + false_positives + false_negatives),
            "precision": right / (right + false_positives), "recall": right / (right + false_negatives)}


def _consistency(hidden: DocumentsHidden, answer: dict[str, Any], locale: fields.Locale) -> float:
    """Share of the sums that hold, to a cent for each amount in them. An amount that is not there breaks its sum."""
    held = 0
    for *parts, whole in hidden.sums:
        read = [amount for name in parts for amount in _amounts(answer.get(name), locale)]
        amounts = [amount for amount in read if amount is not None]
        total = fields.money(answer.get(whole), locale)
        if amounts and len(amounts) == len(read) and total is not None:
            held += abs(sum(amounts, Decimal(0)) - total) <= CENT * len(amounts)
    return held / len(hidden.sums)


def _amounts(value: Any, locale: fields.Locale) -> list[Decimal | None]:
    return [fields.money(item, locale) for item in (value if isinstance(value, list) else [value])]
