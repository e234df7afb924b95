"""A folder of invoices is imported whole or refused; types and the way of writing are told from the wanted values."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import TaskError
from tasks.importers import load_tasks
from tasks.task import Task
from tests.conftest import require_real

WANTED = ('{"issuer": "Café B.V.", "invoice_number": "007", "vat": 7740001454, "amount": 1234.50, '
          '"amount_untaxed": 1000, "amount_tax": 234.50, "date": "2024-04-03", "currency": "EUR", "paid": true, '
          '"note": null, "lines": ['
          '{"code": "", "name": "Tea", "qty": 2, "line_tax_percent": 21, "price_subtotal": 900.0}, '
          '{"code": "A1", "name": "Pot", "qty": 1, "price_subtotal": 100}], "line_rate": ["1%", "2 %"]}')
TEXT = "Café B.V.\nFactuur 007\n3/4/2024\nTotaal € 1.234,50\nThee 900,00\nPot 100,00\n"


def imported(folder: Path, wanted: Any = WANTED, text: str | bytes | None = TEXT, pdf: bytes | None = None) -> Task:
    (folder / "a.json").write_text(wanted if isinstance(wanted, str) else json.dumps(wanted))
    if text is not None:
        (folder / "a.txt").write_bytes(text.encode() if isinstance(text, str) else text)
    if pdf is not None:
        (folder / "a.pdf").write_bytes(pdf)
    task, = load_tasks("invoices", folder)
    return task


def test_types_numbers_and_dates_are_told_from_the_document(tmp_path: Path) -> None:
    task = imported(tmp_path)
    fields = task.hidden["fields"]
    assert {name: field["type"] for name, field in fields.items()} == {
        "issuer": "text", "invoice_number": "id", "vat": "id", "amount": "money", "amount_untaxed": "money",
        "amount_tax": "money", "date": "date", "currency": "text", "paid": "flag", "note": "text", "lines": "items",
        "line_rate": "percent"}
    assert fields["lines"]["of"] == {"code": "id", "name": "text", "qty": "number", "line_tax_percent": "percent",
                                     "price_subtotal": "money"}
    assert fields["lines"]["want"][1] == {"code": "A1", "name": "Pot", "qty": "1", "price_subtotal": "100"}
    assert fields["amount"]["want"] == "1234.50" and fields["note"]["want"] is None
    assert fields["line_rate"]["want"] == ["1", "2"] and fields["paid"]["want"] == "true"
    assert (task.hidden["decimal"], task.hidden["dates"], task.hidden["currencies"]) == (",", "dmy", ["EUR", "€"])
    assert task.hidden["sums"] == [["amount_untaxed", "amount_tax", "amount"],
                                   ["lines.price_subtotal", "amount_untaxed"]]
    assert json.loads(json.loads(task.reference[-1])["arguments"]["answer"])["amount"] == 1234.5
    assert "1234" not in task.prompt and "lines: list of rows with code (id)" in task.prompt


def test_english_writing_and_month_first(tmp_path: Path) -> None:
    task = imported(tmp_path, text="Total 1,234.50\n04/03/2024")
    assert (task.hidden["decimal"], task.hidden["dates"]) == (".", "mdy")


@pytest.mark.parametrize(("wanted", "text", "where"), [
    ("{", TEXT, "a.json"), ("[]", TEXT, "a.json"), ("{}", TEXT, "a.json"), ("[{}, {}]", TEXT, "a.json"),
    ("3", TEXT, "a.json"),
    ({"a": {"b": {"c": 1}}}, TEXT, "$.a"), ({"a": [{"b": [1]}]}, TEXT, "$.a.b"), (WANTED, None, "a.json"),
    (WANTED, b"\xff\xfe", "a.txt:1"), ("[" * 5000, TEXT, "a.json")])
def test_a_broken_folder_is_named(tmp_path: Path, wanted: Any, text: Any, where: str) -> None:
    with pytest.raises(TaskError) as caught:
        imported(tmp_path, wanted, text)
    assert where in caught.value.where and caught.value.hint and caught.value.exit_code == 2


def test_an_empty_or_missing_folder_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(TaskError) as caught:
            load_tasks("invoices", path)
        assert str(path) in caught.value.where


def test_a_pdf_alone_gets_its_text_beside_it_and_a_broken_one_is_named(
        tmp_path: Path, cases: Callable[[str], Path]) -> None:
    if importlib.util.find_spec("pypdf") is None:
        require_real("pypdf", "the extra `documents` is not installed")
    with pytest.raises(TaskError, match="not a PDF"):
        imported(tmp_path, text=None, pdf=b"hello")
    task = imported(tmp_path, text=None, pdf=cases("documents/invoice2data/saeco.pdf").read_bytes())
    assert set(task.files) == {"a.pdf", "a.txt"} and b"VF1005193039" in task.files["a.txt"]


def test_the_real_folder(cases: Callable[[str], Path]) -> None:
    tasks = {task.task_id: task.hidden for task in load_tasks("invoices", cases("documents/invoice2data"))}
    assert len(tasks) == 9
    assert {name: hidden["decimal"] for name, hidden in tasks.items() if hidden["decimal"] == ","} == {
        "invoice-Orlen": ",", "invoice-coolblue1": ",", "invoice-saeco": ","}
    assert tasks["invoice-AzureInterior"]["dates"] == "mdy" and tasks["invoice-saeco"]["dates"] == "dmy"
