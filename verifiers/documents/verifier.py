"""The verifier of kind `documents`: typed fields of one JSON object (`hidden.fields`), or the answer to one question
about tables and text (`hidden.question`).

Components: `fields` (the reward), `precision`, `recall`, `consistency` where sums are declared, `grounded` where
sources are; or `exact` and `f1` for a question. See verifiers.documents.match and .question. A document that a policy
hands in and that cannot be read is a 0 that says why; a task's own that cannot is a verifier error.
"""

from __future__ import annotations

from typing import Any

from schemas.errors import VerifierError
from tasks.task import Submission, Task
from verifiers.digest import code_digest
from verifiers.documents import grounds, match, question, sums
from verifiers.documents.answer import ANSWER_LIMIT, BadAnswer, parse_answer
from verifiers.documents.hidden import DocumentsHidden, hidden_of
from verifiers.documents.pages import FILE_LIMIT, Unreadable, pages_of
from verifiers.killable import versions
from verifiers.submitted import NotSubmitted, read_submitted
from verifiers.verifier import Context, Score

MODULES = ("verifiers.documents", *(f"verifiers.documents.{name}" for name in (
    "answer", "assignment", "dates", "fields", "grounds", "hidden", "locale", "match", "numbers", "pages",
    "question", "sums", "texts", "verifier")), "tasks.documents_pdf", "verifiers.killable",
    "verifiers.number_words", "verifiers.submitted")


class DocumentsVerifier:
    name = "documents"

    @property
    def digest(self) -> str:
        return code_digest(MODULES, versions("pypdf"))

    def verify(self, submission: Submission, task: Task, context: Context) -> Score:
        hidden = hidden_of(task)
        try:
            text = _answer(hidden, submission, task, context)
        except NotSubmitted as wrong:
            return _nothing(hidden, str(wrong), None)
        if text is not None and len(text) > ANSWER_LIMIT:
            return _nothing(hidden, f"longer than {ANSWER_LIMIT} characters", text)
        if hidden.question is not None:
            components, reward, evidence = question.judge(hidden.question, text)
            return Score(reward=reward, components=components, evidence={**evidence, "answer": text})
        try:
            answer = parse_answer(text)
        except BadAnswer as wrong:
            return _nothing(hidden, str(wrong), text)
        return _fields(hidden, answer, text, task)


def _answer(hidden: DocumentsHidden, submission: Submission, task: Task, context: Context) -> str | None:
    """The answer's text: what was handed in, or the file that the task asks for."""
    if not hidden.path:
        return submission.answer
    sandbox = context.open_sandbox(submission, task)
    data = read_submitted(sandbox, hidden.path, FILE_LIMIT)
    try:
        return "\n".join(pages_of(hidden.path, data))
    except Unreadable as wrong:
        raise NotSubmitted(str(wrong)) from None


def _nothing(hidden: DocumentsHidden, problem: str, text: str | None) -> Score:
    names = ("exact", "f1") if hidden.question else ("fields", "precision", "recall")
    return Score(reward=0.0, components=dict.fromkeys(names, 0.0), evidence={"problem": problem, "answer": text})


def _fields(hidden: DocumentsHidden, answer: dict[str, Any], text: str | None, task: Task) -> Score:
    found = match.leaves(hidden, answer)
    components = match.rates(found)
    evidence: dict[str, Any] = {"verdicts": {leaf.path: leaf.verdict for leaf in found}, "answer": text,
                                "fields": [_row(leaf) for leaf in found]}
    if hidden.sums:
        rows = sums.check(hidden.sums, answer, hidden.locale)
        components["consistency"] = sum(row["holds"] for row in rows) / len(rows)
        evidence["sums"] = rows
    if hidden.sources:
        components["grounded"], evidence["pages"] = grounds.grounded(found, _sources(hidden, task), hidden.locale)
    return Score(reward=components["fields"], components=components, evidence=evidence)


def _sources(hidden: DocumentsHidden, task: Task) -> list[str]:
    try:
        return [page for name in hidden.sources for page in pages_of(name, task.files[name])]
    except Unreadable as wrong:
        raise VerifierError(f"a document of the task cannot be read: {wrong}", where=f"task {task.task_id}") from None


def _row(leaf: match.Leaf) -> dict[str, Any]:
    row = {"path": leaf.path, "verdict": leaf.verdict, "want": leaf.want, "got": _plain(leaf.got)}
    return {**row, "why": leaf.why} if leaf.why else row


def _plain(value: Any) -> Any:
    """Numbers as they were written."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value if value is None or isinstance(value, str | bool) else str(value)
