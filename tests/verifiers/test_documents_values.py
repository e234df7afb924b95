"""Amounts, dates and texts are read as documents write them; what could be two values is none."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers.documents import dates
from verifiers.documents.answer import BadAnswer, parse_answer
from verifiers.documents.fields import matches, money, number, percent
from verifiers.documents.locale import Locale

ENGLISH, GERMAN = Locale(".", ",", ("$", "USD")), Locale(",", ".", ("€", "EUR"))
POLISH, SWISS = Locale(",", "  ", ("PLN", "zł")), Locale(".", "'’", ("CHF",))


@pytest.mark.parametrize(("text", "locale", "wanted"), [
    ("1,234.50", ENGLISH, "1234.50"), ("1.234,50", GERMAN, "1234.50"), ("$ 1,234.50", ENGLISH, "1234.50"),
    ("1.234,50 EUR", GERMAN, "1234.50"), ("(1,234.50)", ENGLISH, "-1234.50"), ("($5)", ENGLISH, "-5"),
    ("-$5", ENGLISH, "-5"), ("$-5", ENGLISH, "-5"), ("5,00-", GERMAN, "-5"), ("5,00- €", GERMAN, "-5"),
    ("\u22125", GERMAN, "-5"), ("1234", GERMAN, "1234"), ("0", ENGLISH, "0"), ("1.234.567", GERMAN, "1234567"),
    ("1 234 567,89 zł", POLISH, "1234567.89"), ("1\u00a0234,00 PLN", POLISH, "1234"), ("12'345.50", SWISS, "12345.50"),
    ("CHF 12’345.50", SWISS, "12345.50"), ("$(9.8) million", ENGLISH, "-9800000"),
    ("1.5 billion", ENGLISH, "1500000000"),
    ("€ -9,32", GERMAN, "-9.32"), ("+5", ENGLISH, "5"), ("$5-", ENGLISH, "-5"), ("–5", ENGLISH, "-5"),
    ("５", ENGLISH, "5"), ("000", ENGLISH, "0"), ("0,00", GERMAN, "0"), ("USD5", ENGLISH, "5")])
def test_amounts_are_read_as_the_document_writes_them(text: str, locale: Locale, wanted: str) -> None:
    assert money(text, locale) == Decimal(wanted)


@pytest.mark.parametrize("text", [
    "", " ", "€", "--5", "-(5)", "5 6", "1.23,4,5", "12.34", "1,5,", ",5", "5,", "1e3", "NaN", "inf", "٣4", "½", "5%",
    "0x10", "1.2345", "$5", "€€5", "5€ 6€", "9" * 100, "-", "–", "((5))", "(5", "5)", "-5-", "5 million thousand",
    "5 dozen", "ca. 5", "5 or 6", "5/6", "5,00 Euro", "1.234.5", "1..234", "1 234", "€ EUR 5", "5m", "million", "²"])
def test_what_is_not_one_amount_is_none(text: str) -> None:
    assert money(text, GERMAN) is None


def test_only_amounts_may_have_a_symbol_and_texts_fold() -> None:
    assert number("5 €", GERMAN) is None and money("5 €", GERMAN) == 5
    assert number("5 million", ENGLISH) is None
    assert percent("21 %", GERMAN) == percent("21", GERMAN) == percent(Decimal(21), GERMAN) == 21
    assert percent("21 million", GERMAN) is None and percent("1,5%", GERMAN) == Decimal("1.5")
    assert matches("text", "  MÜLLER  &\tco ", "Müller & Co", GERMAN)
    assert matches("text", "O’Neil — “Straße”\u200b", "O'Neil - \"Strasse\"", GERMAN)
    assert not matches("text", "Muller & Co", "Müller & Co", GERMAN) and not matches("text", Decimal(5), "5", GERMAN)
    assert matches("id", " 0042 ", "0042", GERMAN) and not matches("id", "00042", "0042", GERMAN)
    assert matches("id", Decimal(42), "42", GERMAN) and not matches("id", Decimal(42), "0042", GERMAN)
    assert not matches("id", Decimal("4.2E1"), "42.0", GERMAN) and not matches("id", "ab1", "AB1", GERMAN)
    assert matches("number", Decimal("3.0"), "3", GERMAN) and not matches("number", True, "1", GERMAN)
    assert matches("flag", True, "true", GERMAN) and not matches("flag", Decimal(1), "true", GERMAN)


@pytest.mark.parametrize(("text", "order", "wanted"), [
    ("2024-02-29", "", "2024-02-29"), ("29.02.2024", "", "2024-02-29"), ("29/02/2024", "", "2024-02-29"),
    ("02/29/2024", "", "2024-02-29"), ("03/04/2024", "dmy", "2024-04-03"), ("03/04/2024", "mdy", "2024-03-04"),
    ("03.04.2024", "", "2024-04-03"), ("04/04/2024", "", "2024-04-04"), ("8-9-2022", "dmy", "2022-09-08"),
    ("20240229", "", "2024-02-29"), ("2024/2/29", "", "2024-02-29"), ("29.2.24", "", "2024-02-29"),
    ("31.12.99", "", "1999-12-31"), ("19 april 2014", "", "2014-04-19"), ("1. März 2023", "", "2023-03-01"),
    ("1 mrt 2023", "", "2023-03-01"), ("5 października 2021", "", "2021-10-05"), ("March 20, 2023", "", "2023-03-20"),
    ("Mar 20th 2023", "", "2023-03-20"), ("20-Mar-2023", "", "2023-03-20"), ("2023 March 20", "", "2023-03-20"),
    ("1er février 2024", "", "2024-02-01"), ("3 de mayo de 2022", "", "2022-05-03"),
    ("Monday, 20 March 2023", "", "2023-03-20"),
    ("2023-03-20T00:00:00Z", "", "2023-03-20"), ("2023-03-20 00:00", "", "2023-03-20"),
    ("20th of March, 2023", "", "2023-03-20"),
    ("3 CZERWCA 2020", "", "2020-06-03"), ("12 août 2020", "", "2020-08-12"), ("07 listopada 2020", "", "2020-11-07")])
def test_dates_are_read_in_many_ways(text: str, order: str, wanted: str) -> None:
    assert dates.parse(text, order) == datetime.date.fromisoformat(wanted)


@pytest.mark.parametrize("text", [
    "", "03/04/2024", "1-2-24", "2024-02-30", "31.04.2024", "29.02.2023", "2024", "March 2024", "today", "20 March",
    "20 March 2023 or 21 March 2023", "20-21 March 2023", "32 March 2023", "20 Ma 2023", "20 Jui 2023", "2024-13-01",
    "2023-03-20T17:00:00", "20/03-2023", "20 March April 2023", "٢٠.٠٣.2023", "2024-02-29 " * 9, "due 20 March 2023",
    "0000-01-01", "00.00.0000", "²0.03.2023", "20 March 23 2024", "YYYY-MM-DD"])
def test_what_could_be_two_dates_or_none_is_none(text: str) -> None:
    assert dates.parse(text) is None


@given(st.dates(), st.sampled_from(["%Y-%m-%d", "%d.%m.%Y", "%d %B %Y", "%B %d, %Y", "%d-%b-%Y", "%Y%m%d"]))
def test_every_date_comes_back(day: datetime.date, form: str) -> None:
    text = day.strftime(form.replace("%Y", f"{day.year:04d}"))
    assert dates.parse(text) == day


@given(st.decimals(min_value=-10**9, max_value=10**9, places=2), st.sampled_from([ENGLISH, GERMAN, POLISH, SWISS]))
def test_every_amount_comes_back(amount: Decimal, locale: Locale) -> None:
    whole, _, part = f"{abs(amount):,.2f}".partition(".")
    text = f"{whole.replace(',', locale.group[0])}{locale.decimal}{part}"
    for written in (f"-{text}", f"({text})", f"{text}-", f"{locale.currencies[0]} -{text}"):
        assert money(written, locale) == -abs(amount)
    assert money(text, locale) == abs(amount)


def test_json_numbers_stay_exact() -> None:
    assert parse_answer('{"a": 0.1, "b": 10}') == {"a": Decimal("0.1"), "b": Decimal(10)}
    for text in ('{"a": {"b": 1, "b": 2}}', "[[]]", "[{}, {}]"):
        with pytest.raises(BadAnswer):
            parse_answer(text)


@given(st.text(max_size=80) | st.text("0123456789.,-()$€ %", max_size=20))
def test_no_text_breaks_a_reader(text: str) -> None:
    value: Any
    for value in (money(text, GERMAN), number(text, ENGLISH), percent(text, ENGLISH)):
        assert value is None or value.is_finite()
    dates.parse(text)
