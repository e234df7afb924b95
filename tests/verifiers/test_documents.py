"""Answers about documents: strict by type, each wrong field costs itself, dumping and hedging do not pay."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest

from schemas.errors import VerifierError
from tasks.task import Submission, Task
from tests.conftest import require_real
from verifiers.documents import DocumentsVerifier
from verifiers.verifier import Score

HIDDEN: dict[str, Any] = {
    "fields": {
        "name": {"type": "text", "want": "Müller & Co"}, "number": {"type": "id", "want": "0042"},
        "date": {"type": "date", "want": "2024-02-29"}, "due": {"type": "date", "want": None},
        "lines": {"type": "money", "want": ["10.00", "-2.50"]}, "subtotal": {"type": "money", "want": "7.50"},
        "tax": {"type": "money", "want": "0"}, "total": {"type": "money", "want": "7.50"}},
    "decimal": ",", "group": ".", "currencies": ["€"], "sums": [["lines", "subtotal"], ["subtotal", "tax", "total"]]}
RIGHT: dict[str, Any] = {"name": "Müller & Co", "number": "0042", "date": "2024-02-29", "due": None,
                         "lines": [10, "2,50-"], "subtotal": "7,50 €", "tax": 0, "total": 7.5}


def judged(answer: Any, hidden: dict[str, Any] = HIDDEN) -> Score:
    task = Task(task_id="t", kind="documents", set="s", prompt="p", hidden=hidden)
    text = answer if isinstance(answer, str) or answer is None else json.dumps(answer)
    submission = Submission(task_id="t", task_digest="", workspace=None, answer=text)
    return DocumentsVerifier().verify(submission, task, None)  # type: ignore[arg-type]


def test_the_right_answer_in_the_documents_own_writing() -> None:
    score = judged(RIGHT)
    assert score.reward == 1.0 and score.components["consistency"] == 1.0


@pytest.mark.parametrize(("field", "wrong"), [
    ("name", "Mueller & Co"), ("number", "42"), ("number", 42),
    ("date", "28.02.2024"), ("date", "29.02.24 or 01.03.24"), ("date", "2024-02-28"),
    ("lines", [10]), ("lines", ["2,50-", 10]), ("lines", [10, 2.5]), ("lines", 7.5), ("subtotal", "7.50"),
    ("tax", ""), ("tax", False), ("total", -7.5), ("total", "7,50 8,50"), ("total", [7.5]), ("due", "2024-03-01")])
def test_one_wrong_field_costs_that_field(field: str, wrong: Any) -> None:
    score = judged({**RIGHT, field: wrong})
    expected = 14 / 15 if field == "due" else 6 / 7  # Nothing is missed where there was nothing to find.
    assert score.reward == pytest.approx(expected)
    wrong_ones = [row["path"] for row in score.evidence["fields"] if row["verdict"] not in ("right", "nothing")]
    assert wrong_ones == [field]


def test_a_missing_field_costs_less_than_a_wrong_one_and_an_invented_one_costs_too() -> None:
    missing = judged({key: value for key, value in RIGHT.items() if key != "name"}).reward
    assert missing == pytest.approx(12 / 13) == judged({**RIGHT, "name": None}).reward
    assert judged({**RIGHT, "iban": "DE00"}).reward == pytest.approx(14 / 15)
    assert judged({**RIGHT, "iban": None}).reward == 1.0


def test_zero_is_a_value() -> None:
    for nothing in (None, "-", "–"):
        assert judged({**RIGHT, "tax": nothing}).reward == pytest.approx(12 / 13)
    assert judged({**RIGHT, "due": "-"}).reward < 1.0, "a dash is nothing among numbers only"


@pytest.mark.parametrize("answer", [
    None, "", "   ", "the total is 7,50", "[]", "7.5", "null", '{"total": NaN}', '{"total": Infinity}',
    '{"total": 1e999}', '{"total": 7.5} {"total": 8.5}', '{"total": 7.5, "total": 8.5}', "{", "[" * 100_000,
    '{"total": ' + "9" * 5000 + "}", '{"x": "' + "y" * 70_000 + '"}', "{}"])
def test_what_is_not_one_answer_is_worth_nothing(answer: str | None) -> None:
    score = judged(answer)
    assert score.reward == 0.0


def test_dumping_the_page_into_every_field_is_worth_nothing() -> None:
    page = ["Müller & Co", "0042", "2024-02-29", "10,00", "2,50-", "7,50"]
    assert judged(dict.fromkeys(RIGHT, page)).reward == 0.0
    assert judged({name: " ".join(page) for name in RIGHT}).reward == 0.0
    assert judged({f"guess {index}": index / 2 for index in range(200)} | {"total": 7.5}).reward < 0.02


def test_consistency_looks_at_what_was_answered() -> None:
    assert judged({**RIGHT, "subtotal": 8.5, "total": 8.5, "lines": [11, -2.5]}).components["consistency"] == 1.0
    assert judged({**RIGHT, "total": 9}).components["consistency"] == 0.5
    assert judged({**RIGHT, "lines": ["ten"]}).components["consistency"] == 0.5
    assert judged({**RIGHT, "lines": []}).components["consistency"] == 0.5


ITEMS: dict[str, Any] = {"fields": {
    "number": {"type": "id", "want": "7"},
    "lines": {"type": "items", "of": {"name": "text", "qty": "number", "price": "money", "tax": "percent"}, "want": [
        {"name": "Apple", "qty": "2", "price": "1.50", "tax": "21"}, {"name": "Pear", "qty": "1", "price": "0"},
        {"note": ""}]},
    "total": {"type": "money", "want": "3.00"}},
    "currencies": ["$"], "sums": [["lines.price", "total"]]}
ROWS: list[dict[str, Any]] = [{"name": "Apple", "qty": 2, "price": "$1.50", "tax": "21%"},
                              {"name": "Pear", "qty": 1.0, "price": 0}, {"note": ""}]


def items(rows: Any, **more: Any) -> Score:
    if importlib.util.find_spec("scipy") is None:
        require_real("scipy", "the extra `documents` is not installed")
    return judged({"number": 7, "lines": rows, "total": 3, **more}, ITEMS)


def test_rows_are_paired_in_any_order_and_each_value_counts_alone() -> None:
    assert items(ROWS).reward == items(ROWS[::-1]).reward == 1.0  # Ten values: 1 + 8 + 1.
    for row, key, wrong in [(0, "name", "Apples"), (0, "qty", 3), (0, "price", 0.0), (0, "tax", 0.21), (1, "price", ""),
                            (1, "qty", "1 pc"), (2, "note", "x")]:
        rows = [dict(line) for line in ROWS]
        rows[row][key] = wrong
        score = items(rows)
        assert score.reward == pytest.approx(0.9), (row, key)
        assert [leaf["path"] for leaf in score.evidence["fields"] if leaf["verdict"] == "wrong"] == [
            f"lines[{row}].{key}"]


@pytest.mark.parametrize(("rows", "reward"), [
    (ROWS[:2], 18 / 19), ([*ROWS, {"name": "Plum", "qty": 1}], 20 / 22), ([*ROWS, ROWS[0]], 20 / 24),
    ([*ROWS, {"price": None}], 1.0), ([{**ROWS[0], "barcode": "1"}, *ROWS[1:]], 20 / 21), ([], 4 / 12), (None, 4 / 12),
    ("Apple, Pear", 4 / 13), ({"name": "Apple"}, 4 / 13), ([["Apple", 2]], 4 / 14), ([*ROWS, "x"], 4 / 21),
    ([{"name": "Apple"}, {"qty": 2}, {"price": 1.5}, *ROWS[1:]], 14 / 19)])
def test_rows_too_many_too_few_or_of_another_shape(rows: Any, reward: float) -> None:
    assert items(rows).reward == pytest.approx(reward)


def test_a_thousand_guessed_rows_do_not_pay_and_end_in_time() -> None:
    rows = [{"name": name, "qty": qty} for name in ("Apple", "Pear", "Plum") for qty in range(300)]
    assert items(rows).reward < 0.02


def test_a_column_of_rows_is_summed() -> None:
    assert items(ROWS).components["consistency"] == 0.0  # 1.50 + 0 is not 3.
    assert items(ROWS, total="1.50").components["consistency"] == 1.0
    assert items(ROWS).evidence["sums"] == [{"sum": "lines.price = total", "holds": False, "difference": "-1.50"}]


def test_both_empty_is_right_and_one_of_both_is_not() -> None:
    empty: dict[str, Any] = {"fields": {"lines": {"type": "items", "want": []}, "due": {"type": "date", "want": None}}}
    assert judged({"lines": []}, empty).reward == judged({"due": None}, empty).reward == judged({}, empty).reward == 1.0
    assert judged({"lines": [{"a": 1}]}, empty).reward == judged({"due": "2024-01-01"}, empty).reward == 0.0
    assert judged(dict.fromkeys(RIGHT), HIDDEN).reward == 0.0, "saying nothing everywhere is no find"


@pytest.mark.parametrize("answer", [
    {"name": "string", "number": "string", "date": "YYYY-MM-DD", "lines": [0.0], "total": "0.00"},
    {name: name for name in RIGHT}, {name: f"{name}: {value}" for name, value in RIGHT.items()},
    {name: [value] for name, value in RIGHT.items()}, {name: {"value": value} for name, value in RIGHT.items()},
    {"fields": RIGHT}, [RIGHT, RIGHT], {name: f"{value} or {value}" for name, value in RIGHT.items()},
    {name.upper(): value for name, value in RIGHT.items()}])
def test_hacks_are_worth_nothing(answer: Any) -> None:
    """The schema's example, labels as values, labels before values, wrappings, hedges, other keys."""
    assert judged(answer).reward == 0.0


def test_the_object_alone_in_a_list_stands_for_itself() -> None:
    assert judged([RIGHT]).reward == 1.0


@pytest.mark.parametrize("answer", [
    "[" * 100_000 + "]" * 100_000, '{"name":' * 100 + "1" + "}" * 100, '{"total": -Infinity}',
    '{"a": [{"b": 1, "b": 1}]}',
    "\ufeff{}", "{'name': 1}", '{"name": "x"} // done', "```json\n{}\n```", '{"total": 0x10}', '{"total": 01}', "\x00",
    '{"total": "7,50"' + " " * 70_000 + "}"])
def test_more_that_is_not_one_answer(answer: str) -> None:
    score = judged(answer)
    assert score.reward == 0.0 and score.evidence["problem"]


def test_an_answer_of_two_gigabytes_is_not_read() -> None:
    class Huge(str):
        def __len__(self) -> int:
            return 2 << 30

        def strip(self, chars: str | None = None, /) -> str:
            raise AssertionError("read")

    submission = Submission(task_id="t", task_digest="", workspace=None, answer=Huge("{"))
    for hidden in (HIDDEN, {"question": {"type": "span", "want": ["x"]}}):
        task = Task(task_id="t", kind="documents", set="s", prompt="p", hidden=hidden)
        score = DocumentsVerifier().verify(submission, task, None)  # type: ignore[arg-type]
        assert score.reward == 0.0 and "longer than" in score.evidence["problem"]


@pytest.mark.parametrize("hidden", [
    {}, {"fields": {}}, {"fields": {"a": {"type": "colour", "want": "red"}}},
    {"fields": {"a": {"type": "money", "want": "x"}}},
    {"fields": {"a": {"type": "money", "want": "NaN"}}}, {"fields": {"a": {"type": "date", "want": "1.2.2024"}}},
    {"fields": {"a": {"type": "text", "want": "x"}}, "sums": [["b", "a"]]},
    {"fields": {"a": {"type": "text", "want": "x"}}, "sources": ["absent.txt"]},
    {"fields": {"a": {"type": "items", "want": "x"}}}, {"fields": {"a": {"type": "items", "want": ["x"]}}},
    {"fields": {"a": {"type": "items", "of": {"b": "colour"}, "want": []}}},
    {"fields": {"a": {"type": "flag", "want": "1"}}}, {"fields": {"a": {"type": "text", "want": [{"b": "c"}]}}},
    {"question": {"type": "essay", "want": ["x"]}}, {"question": {"type": "span", "want": []}},
    {"question": {"type": "span", "want": ["x"], "scale": "dozen"}},
    {"question": {"type": "arithmetic", "want": ["1"], "rel": "much"}},
    {"question": {"type": "span", "want": ["x"]}, "fields": {"a": {"type": "text", "want": "x"}}}])
def test_a_broken_task_is_the_verifiers_error(hidden: dict[str, Any]) -> None:
    with pytest.raises(VerifierError):
        judged({"a": "x"}, hidden)
