"""Answers about documents: strict by type, each wrong field costs itself, dumping and hedging do not pay."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from tasks.task import Submission, Task
from verifiers.documents import DocumentsVerifier
from verifiers.fields import BadAnswer, Locale, matches, money, number, parse_answer
from verifiers.verifier import Score

ENGLISH, GERMAN = Locale(".", ",", ("$", "USD")), Locale(",", ".", ("€", "EUR"))
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
    ("name", "Mueller & Co"), ("number", "42"), ("number", 42), ("date", "29.02.2024"), ("date", "2024-02-28"),
    ("lines", [10]), ("lines", ["2,50-", 10]), ("lines", [10, 2.5]), ("lines", 7.5), ("subtotal", "7.50"),
    ("tax", ""), ("tax", False), ("total", -7.5), ("total", "7,50 8,50"), ("total", [7.5]), ("due", "2024-03-01")])
def test_one_wrong_field_costs_that_field(field: str, wrong: Any) -> None:
    score = judged({**RIGHT, field: wrong})
    expected = 14 / 15 if field == "due" else 7 / 8  # Nothing is missed where there was nothing to find.
    assert score.reward == pytest.approx(expected)


def test_a_missing_field_costs_less_than_a_wrong_one_and_an_invented_one_costs_too() -> None:
    missing = judged({key: value for key, value in RIGHT.items() if key != "name"}).reward
    assert missing == pytest.approx(14 / 15) == judged({**RIGHT, "name": None}).reward
    assert judged({**RIGHT, "iban": "DE00"}).reward == pytest.approx(16 / 17)
    assert judged({**RIGHT, "iban": None}).reward == 1.0


def test_zero_is_a_value() -> None:
    assert judged({**RIGHT, "tax": None}).reward == pytest.approx(14 / 15)


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


@pytest.mark.parametrize(("text", "locale", "wanted"), [
    ("1,234.50", ENGLISH, "1234.50"), ("1.234,50", GERMAN, "1234.50"), ("$ 1,234.50", ENGLISH, "1234.50"),
    ("1.234,50 EUR", GERMAN, "1234.50"), ("(1,234.50)", ENGLISH, "-1234.50"), ("($5)", ENGLISH, "-5"),
    ("-$5", ENGLISH, "-5"), ("$-5", ENGLISH, "-5"), ("5,00-", GERMAN, "-5"), ("5,00- €", GERMAN, "-5"),
    ("\u22125", GERMAN, "-5"), ("1234", GERMAN, "1234"), ("0", ENGLISH, "0"), ("1.234.567", GERMAN, "1234567")])
def test_amounts_are_read_as_the_document_writes_them(text: str, locale: Locale, wanted: str) -> None:
    assert money(text, locale) == Decimal(wanted)


@pytest.mark.parametrize("text", [
    "", " ", "€", "--5", "-(5)", "5 6", "1.23,4,5", "12.34", "1,5,", ",5", "5,", "1e3", "NaN", "inf", "٣", "½", "5%",
    "0x10", "1.2345", "$5", "€€5", "5€ 6€", "9" * 100])
def test_what_is_not_one_amount_is_none(text: str) -> None:
    assert money(text, GERMAN) is None


def test_only_amounts_may_have_a_symbol_and_texts_fold() -> None:
    assert number("5 €", GERMAN) is None and money("5 €", GERMAN) == 5
    assert matches("text", "  MÜLLER  &\tco ", "Müller & Co", GERMAN)
    assert matches("id", " 0042 ", "0042", GERMAN) and not matches("id", "00042", "0042", GERMAN)
    assert matches("number", Decimal("3.0"), "3", GERMAN) and not matches("number", True, "1", GERMAN)
    assert not matches("date", "2024-02-30", "2024-02-29", GERMAN)


def test_json_numbers_stay_exact() -> None:
    assert parse_answer('{"a": 0.1, "b": 10}') == {"a": Decimal("0.1"), "b": Decimal(10)}
    with pytest.raises(BadAnswer, match="twice"):
        parse_answer('{"a": {"b": 1, "b": 2}}')
