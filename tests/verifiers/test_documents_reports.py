"""Values that public reports found misread in documents, each with its report; native digits, numbers in words, lakhs,
alternative answers and several currencies."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import VerifierError
from tasks.importers import load_tasks
from tests.verifiers.test_documents import judged
from tests.verifiers.test_documents_question import judged as asked
from verifiers.documents import dates
from verifiers.documents.fields import matches, money, number, percent
from verifiers.documents.locale import Locale
from verifiers.documents.numbers import same_currency

DOT, COMMA = Locale(".", ",", ("$", "USD", "₹", "INR", "Rs.")), Locale(",", ". '", ("€", "EUR"))


@pytest.mark.parametrize(("report", "text", "locale", "wanted"), [
    ("invoice-x/invoice2data#12", "27,80", COMMA, "27.80"), ("invoice-x/invoice2data#12", "27,80", DOT, None),
    ("OCA/edi#619", "42'987,56", COMMA, "42987.56"), ("deadlocker8/BudgetMaster#731", "1.355,90€", COMMA, "1355.90"),
    ("VeriFi-nance/VeriFi#133", "103.000", COMMA, "103000"), ("VeriFi-nance/VeriFi#133", "49,10", COMMA, "49.1"),
    ("VeriFi-nance/VeriFi#133", "1.200.000,50", COMMA, "1200000.50"),
    ("VeriFi-nance/VeriFi#133", "31.12.2027", COMMA, None), ("invoiceninja/invoiceninja#2853", "35€", COMMA, "35"),
    ("mjebrahimi/SharpMt940Lib.Core#17", "19053,79", COMMA, "19053.79"),
    ("microsoft/Recognizers-Text#2112", "25 lakh", DOT, "2500000"),
    ("microsoft/Recognizers-Text#2112", "1 crore", DOT, "10000000"),
    ("microsoft/Recognizers-Text#2144", "12,34,567.89", DOT, "1234567.89"),
    ("Invoice-Generator/invoice-generator-api#75", "₹11,23,000.00", DOT, "1123000"),
    ("d3/d3#2817", "1,00,00,00,000", DOT, "1000000000"), ("rupees", "INR 5,00,000/-", DOT, "500000"),
    ("rupees", "Rs. 500/-", DOT, "500"), ("groups that are none", "12,34", DOT, None),
    ("groups that are none", "1,2,345", DOT, None), ("groups that are none", "1,234,56", DOT, None),
    ("groups that are none", "123,45,678", DOT, None), ("a decimal comma elsewhere", "0,123", DOT, None),
    ("digits of another script", "١٬٢٣٤٫٥٠", DOT, "1234.50"), ("digits of another script", "-१२३", DOT, "-123"),
    ("digits of two scripts", "١2", DOT, None), ("UKGovernmentBEIS/inspect_ai#4636", "−5", DOT, "-5"),
    ("UKGovernmentBEIS/inspect_ai#4636", "–5", DOT, "-5"), ("UKGovernmentBEIS/inspect_ai#4620", "$3.14", DOT, "3.14"),
    ("UKGovernmentBEIS/inspect_ai#4620", "(3.14)", DOT, "-3.14")])
def test_reported_amounts(report: str, text: str, locale: Locale, wanted: str | None) -> None:
    assert money(text, locale) == (None if wanted is None else Decimal(wanted))


@pytest.mark.parametrize(("report", "text", "order", "wanted"), [
    ("OCA/edi#619", "July 14th, 2022", "", "2022-07-14"), ("OCA/edi#619", "1er Janvier 2022", "", "2022-01-01"),
    ("digits of another script", "٢٠/٠٣/٢٠٢٣", "", "2023-03-20"), ("years first", "2023年3月20日", "", "2023-03-20"),
    ("two orders", "05/06/2023", "dmy", "2023-06-05"),
    ("two orders", "05/06/2023", "mdy", "2023-05-06"), ("two orders", "05/06/2023", "", None),
    ("the other order", "13/06/2023", "mdy", None), ("the other order", "06/13/2023", "dmy", None)])
def test_reported_dates(report: str, text: str, order: str, wanted: str | None) -> None:
    assert dates.parse(text, order) == (None if wanted is None else datetime.date.fromisoformat(wanted))


def test_numbers_in_words_are_numbers_and_no_amounts() -> None:
    assert number("forty-two", DOT) == 42 and number("two and a half", DOT) == Decimal("2.5")
    assert percent("five", DOT) == 5 and number("one third", DOT) is None and money("five dollars", DOT) is None
    assert number("two or three", DOT) is None and matches("number", "Three", "3", DOT)
    assert not matches("text", "three", "3", DOT) and not matches("id", "three", "3", DOT)
    assert asked("3", "three", kind="count").reward == 1.0 and asked("3", "thirteen", kind="count").reward == 0.0


def test_a_word_of_a_passage_is_no_number() -> None:
    passage = "one of the notes says that the company and its affiliates may not be able to pay"
    assert asked(passage, passage, kind="span").reward == 1.0
    assert (asked(passage.replace("one of ", ""), passage, kind="span").reward or 0.0) > 0.9


@pytest.mark.parametrize(("report", "want", "answer", "reward"), [
    ("huggingface/lighteval#1356", ["4"], ["4", "4"], 0.0), ("huggingface/lighteval#1356", ["4"], "4", 1.0),
    ("huggingface/lighteval#229", ["4", "5"], ["5", "4"], 1.0),
    ("EvolvingLMMs-Lab/lmms-eval#673", ["yes"], "yes.", 1.0),
    ("EvolvingLMMs-Lab/lmms-eval#673", ["yes"], "yes and no", 0.0), ("huggingface/blog#1666", ["10"], "10\n", 1.0),
    ("huggingface/blog#1666", ["12.25"], "12", 0.0), ("huggingface/blog#1666", ["10"], "10\n\nPassage: 11", 0.0),
    ("benseverndev-oss/goldenmatch#1168", ["acme"], "acmecorp", 0.0),
    ("another currency", ["$5 million"], "€5 million", 0.0),
    ("the same currency", ["$5 million"], "USD 5 million", 1.0),
    ("a currency or none", ["$5 million"], "5 million", 1.0)])
def test_reported_answers(report: str, want: list[str], answer: Any, reward: float) -> None:
    assert asked(want, answer, kind="multi-span" if len(want) > 1 else "span").reward == reward


def test_another_annotators_answer_is_right_too() -> None:
    for answer, reward in (("north", 1.0), ("the north side", 1.0), ("south", 0.0), (["north", "the north side"], 0.0)):
        assert asked("north", answer, kind="span", also=[["north side"], ["northern side"]]).reward == reward
    assert asked("12", 13, also=[["13"]]).reward == 1.0 and asked("12", 12.5, also=[["13"]]).reward == 0.0
    with pytest.raises(VerifierError):
        asked("12", 13, also=[[]])


def test_a_field_may_have_several_right_values_and_one_currency() -> None:
    hidden: dict[str, Any] = {
        "fields": {"name": {"type": "text", "want": "Acme Ltd", "also": ["Acme Limited"]},
                   "paid": {"type": "money", "want": "5.00", "currency": "EUR"},
                   "lines": {"type": "items", "of": {"price": "money"}, "want": [{"price": "2"}], "currency": "$"}},
        "currencies": ["€", "EUR", "$", "USD"]}
    right = {"name": "ACME limited", "paid": "5.00 €", "lines": [{"price": "USD 2"}]}
    assert judged(right, hidden).reward == 1.0 == judged({**right, "paid": 5}, hidden).reward
    for name, wrong in (("paid", "$5.00"), ("name", ["Acme Ltd", "Acme Limited"]), ("lines", [{"price": "2 €"}])):
        assert (judged({**right, name: wrong}, hidden).reward or 0.0) < 0.8, name
    for broken in ({"type": "money", "want": "5", "also": ["five"]}, {"type": "text", "want": None, "also": ["x"]},
                   {"type": "text", "want": ["a"], "also": ["x"]}):
        with pytest.raises(VerifierError):
            judged(right, {"fields": {"name": broken}})


def test_a_dollar_may_be_that_of_several_countries() -> None:
    assert same_currency("$", "A$") and same_currency("USD", "US$") and same_currency("Rs.", "₹")
    assert not same_currency("US$", "A$") and not same_currency("€", "$") and not same_currency("GBP", "EUR")


@pytest.mark.parametrize(("text", "marks"), [
    ("Total 12,34,567.00 INR on 05/06/2023", (".", ",")), ("Summe 1.234.567,00 EUR", (",", ".")),
    ("Suma 1\u00a0234\u00a0567,00 z", (",", "."))])
def test_the_writing_of_a_document_is_told_from_its_amounts(tmp_path: Path, text: str, marks: tuple[str, str]) -> None:
    """invoice-x/invoice2data#276: one issuer, two decimal marks."""
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "a.json").write_text(json.dumps({"amount": 1234567.0, "date": "2023-06-05"}))
    task, = load_tasks("invoices", tmp_path)
    assert (task.hidden["decimal"], task.hidden["group"][0]) == marks
    assert task.hidden["dates"] == ("dmy" if "05/06" in text else "")
