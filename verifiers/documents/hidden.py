"""What a documents task hides: the wanted fields, or one question's wanted answer. Checked before anything is judged:
a broken task is the task's fault and never a policy's 0."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from schemas.errors import VerifierError
from tasks.task import Task
from verifiers.documents.fields import NUMERIC, TYPES
from verifiers.documents.locale import Locale
from verifiers.documents.numbers import SCALES


class Field(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`want` is canonical text, a list of such (order counts), null (the document does not say it), or, for type
    `items`, a list of rows in any order, whose columns have the types in `of` (default: text)."""

    type: str
    want: str | list[str | dict[str, str]] | None
    of: dict[str, str] = {}
    also: list[str] = []
    """Further values that are right, where `want` is one value."""
    currency: str = ""
    """Of the amounts: where an answer names another of the document's currencies, it is wrong."""


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`type`: span | multi-span | arithmetic | count. `want` is as the document (or the annotator) writes it; the
    scale is told apart. `rel` and `abs` widen what counts as the same computed number."""

    type: str
    want: list[str]
    scale: str = ""
    rel: str = "0"
    abs: str | None = None
    also: list[list[str]] = []
    """Further answers that are right, as other annotators gave them."""


class DocumentsHidden(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    fields: dict[str, Field] = {}
    question: Question | None = None
    path: str = ""
    """The file of the workspace (text, JSON or PDF) that holds the answer; empty: the answer that was handed in."""
    sources: list[str] = []
    """The task's documents; answered values are looked up in them (component `grounded`)."""
    decimal: str = "."
    group: str = ","
    currencies: list[str] = []
    dates: str = ""
    sums: list[list[str]] = []
    """[part, ..., whole]; a list counts as all its amounts, `lines.price` is a column of items."""

    @property
    def locale(self) -> Locale:
        return Locale(self.decimal, self.group, tuple(self.currencies), self.dates)


QUESTION_TYPES = ("span", "multi-span", "arithmetic", "count")


def hidden_of(task: Task) -> DocumentsHidden:
    """Raises VerifierError that names what is wrong."""
    where = f"task {task.task_id}"
    try:
        hidden = msgspec.convert(task.hidden, DocumentsHidden)
    except msgspec.ValidationError as wrong:
        raise VerifierError(f"the task's hidden part is wrong: {wrong}", where=where) from None
    if bool(hidden.fields) == (hidden.question is not None):
        raise VerifierError("a documents task asks for fields or for one question's answer", where=where)
    for what, value in _faults(hidden, task):
        raise VerifierError(what, where=where, value=value)
    return hidden


def _faults(hidden: DocumentsHidden, task: Task) -> Iterator[tuple[str, Any]]:
    for name, field in hidden.fields.items():
        for kind, want in _typed(field):
            if kind not in TYPES:
                yield f"field `{name}` has an unknown type", kind
            elif not _canonical(kind, want):
                yield f"field `{name}` wants a value that is no canonical {kind}", want
    for line in hidden.sums:
        for name in line:
            if name.split(".")[0] not in hidden.fields:
                yield "a sum names an unknown field", name
    for name in hidden.sources:
        if name not in task.files:
            yield "a source is not among the task's files", name
    question = hidden.question
    if question and (question.type not in QUESTION_TYPES or question.scale not in SCALES or not all(
            any(want) for want in (question.want, *question.also))):
        yield "the question has an unknown type or scale, or no answer", [question.type, question.scale]
    if question and not all(_canonical("number", text) for text in (question.rel, question.abs or "0")):
        yield "a tolerance is not a number", [question.rel, question.abs]


def _typed(field: Field) -> Iterator[tuple[str, str | None]]:
    """Each wanted value with its type."""
    rows = field.want if isinstance(field.want, list) else [field.want]
    yield from ((field.type, want) for want in field.also)
    if field.also and not isinstance(field.want, str):
        yield "further values without one", None
    if field.type != "items":
        yield from ((field.type, want) for want in rows if not isinstance(want, dict))
        yield from (("rows without the type `items`", repr(want)) for want in rows if isinstance(want, dict))
        yield from [] if rows else [(field.type, None)]
        return
    yield from ((kind, None) for kind in field.of.values())
    for row in rows:
        if isinstance(row, dict):
            yield from ((field.of.get(key, "text"), want) for key, want in row.items())
        else:
            yield "items", repr(row)


def _canonical(kind: str, want: str | None) -> bool:
    if want is None:
        return True
    try:
        if kind in NUMERIC:
            return Decimal(want).is_finite()
        if kind == "date":
            datetime.date.fromisoformat(want)
    except (ValueError, InvalidOperation):
        return False
    return kind != "flag" or want in ("true", "false")
