"""Documents as files: real invoices, answers in files, PDFs that are none, locked, huge or bombs."""

from __future__ import annotations

import copy
import importlib.util
import io
import json
import zlib
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from schemas.enums import ScoreStatus
from tasks.importers import load_tasks
from tasks.task import Submission, Task
from tests.conftest import require_real
from tests.verifiers.rig import Rig
from verifiers.documents import DocumentsVerifier, pages
from verifiers.verifier import Score


@pytest.fixture(autouse=True)
def libraries() -> None:
    for name in ("pypdf", "scipy"):
        if importlib.util.find_spec(name) is None:
            require_real(name, "the extra `documents` is not installed")


FIELDS: dict[str, Any] = {"total": {"type": "money", "want": "7.50"}}


def pdf(content: bytes, filters: bytes = b"", pages_count: int = 1) -> bytes:
    """A small PDF with one content stream for all its pages."""
    kids = b" ".join(b"%d 0 R" % (4 + index) for index in range(pages_count))
    page = (b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 300] /Contents 3 0 R /Resources << /Font << /F << /Type "
            b"/Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>")
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>",
               b"<< /Type /Pages /Kids [" + kids + b"] /Count %d >>" % pages_count,
               b"<< /Length %d %s >>\nstream\n" % (len(content), filters) + content + b"\nendstream",
               *[page] * pages_count]
    out, places = io.BytesIO(b"%PDF-1.4\n"), []
    out.seek(0, io.SEEK_END)
    for number, body in enumerate(objects, start=1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n" % number + body + b"\nendobj\n")
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.write(b"".join(b"%010d 00000 n \n" % place for place in places))
    out.write(b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start))
    return out.getvalue()


def written(text: str) -> bytes:
    lines = b"".join(b"(%s) Tj 0 -20 Td " % line.encode() for line in text.split("\n"))
    return pdf(b"BT /F 12 Tf 10 280 Td " + lines + b"ET")


def locked() -> bytes:
    import pypdf

    writer = pypdf.PdfWriter(clone_from=io.BytesIO(written("Total 7.50")))
    writer.encrypt("secret", algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def bomb(layers: int = 1, size: int = 400 << 20) -> bytes:
    packer = zlib.compressobj(9)
    data = b"".join(packer.compress(bytes(1 << 20)) for _ in range(size >> 20)) + packer.flush()
    for _ in range(layers - 1):
        data = zlib.compress(data, 9)
    return pdf(data, b"/Filter [" + b"/FlateDecode " * layers + b"]")


def test_a_pdf_is_read_page_by_page() -> None:
    assert "Total 7.50" in pages.pages_of("a.pdf", written("Invoice\nTotal 7.50"))[0]
    assert len(pages.pages_of("a.bin", pdf(b"", pages_count=3))) == 3, "told by its first bytes"
    assert pages.pages_of("a.txt", "\ufeffTötal".encode()) == ("Tötal",)


@pytest.mark.parametrize(("make", "why"), [
    (lambda: b"", "not a PDF"), (lambda: b"hello", "not a PDF"), (lambda: b"PK\x03\x04" + bytes(100), "not a PDF"),
    (lambda: b"%PDF-1.7\n", "cannot be read"), (lambda: b"%PDF-1.7\n" + bytes(range(256)) * 400, "cannot be read"),
    (lambda: written("x")[:200], "cannot be read"), (locked, "encrypted"),
    (lambda: pdf(b"", pages_count=201), "pages"),
    (bomb, "cannot be read"), (lambda: bomb(layers=2), "cannot be read"),
    (lambda: b"%PDF-1.4\n" + bytes(pages.FILE_LIMIT), "larger than")])
def test_a_pdf_that_cannot_be_read_says_why(make: Callable[[], bytes], why: str) -> None:
    with pytest.raises(pages.Unreadable, match=why):
        pages.pages_of("a.pdf", make())


@pytest.mark.parametrize(("data", "why"), [(b"\xff\xfe\x00", "no UTF-8"), (b"x" * (3 << 20), "more than")])
def test_a_text_that_is_none_says_why(data: bytes, why: str) -> None:
    with pytest.raises(pages.Unreadable, match=why):
        pages.pages_of("a.txt", data)


def asking(path: str = "", **more: Any) -> Task:
    return Task(task_id="t", kind="documents", set="s", prompt="p", files={"in.txt": b"Total 7.50\n12 March 2024"},
                hidden={"fields": FIELDS, "path": path, **more})


def test_an_answer_may_be_a_file_and_what_is_wrong_with_it_is_said(rig: Rig) -> None:
    right = written('{"total":\n7.50}')
    for path, content, reward, why in [
            ("out.json", b'{"total": 7.5}', 1.0, ""), ("out.pdf", right, 1.0, ""),
            ("out.pdf", bomb(), 0.0, "cannot be"),
            ("out.pdf", b'{"total": 7.5}', 0.0, "not a PDF"), ("out.pdf", locked(), 0.0, "encrypted"),
            ("out.json", b"\xff", 0.0, "UTF-8"), ("out.json", b"[" * 100_000, 0.0, "longer"),
            ("other", b"", 0.0, "no out")]:
        task = asking(path if path != "other" else "out.json")
        score = rig.score(rig.hand_in(task, {path: content}))
        assert (score.status, score.reward) == (ScoreStatus.OK, reward), (path, content[:20])
        assert why in rig.evidence(score)["details"].get("problem", ""), (path, content[:20])


def test_an_answer_file_of_two_gigabytes_is_not_read(rig: Rig) -> None:
    from sandboxes.sandbox import SandboxSpec

    task = asking("out.json")
    sandbox = rig.backend.acquire(SandboxSpec(files=task.files))
    try:
        sandbox.exec(["truncate", "-s", str(pages.FILE_LIMIT + 1), "out.json"])
        workspace = sandbox.snapshot()
    finally:
        sandbox.close()
    score = rig.score(rig._store(task, workspace, None, []))
    assert (score.status, score.reward) == (ScoreStatus.OK, 0.0)
    assert "out.json" in rig.evidence(score)["details"]["problem"]


def test_values_that_stand_in_no_source_are_told_and_a_broken_source_is_the_tasks_fault(rig: Rig) -> None:
    dated = {**FIELDS, "date": {"type": "date", "want": "2024-03-12"}}
    task = asking(sources=["in.txt"], fields=dated)
    score = rig.score(rig.hand_in(task, answer='{"total": "7.50", "date": "2024-03-12"}'))
    assert (score.reward, score.components["grounded"]) == (1.0, 1.0)
    score = rig.score(rig.hand_in(task, answer='{"total": "8.50", "date": "2024-03-12"}'))
    assert score.components["grounded"] == 0.5
    assert rig.evidence(score)["details"]["pages"] == {"date": 1, "total": None}
    for broken in (b"no pdf", bomb(), locked()):
        task = Task(task_id="t", kind="documents", set="s", prompt="p", files={"in.pdf": broken},
                    hidden={"fields": FIELDS, "sources": ["in.pdf"]})
        score = rig.score(rig.hand_in(task, answer='{"total": 7.5}'))
        assert (score.status, score.reward) == (ScoreStatus.VERIFIER_ERROR, None)
        assert "in.pdf" in rig.evidence(score)["details"]["message"]


def of(task: Task, answer: Any) -> Score:
    submission = Submission(task_id="", task_digest="", workspace=None, answer=json.dumps(answer, default=str))
    return DocumentsVerifier().verify(submission, task, None)  # type: ignore[arg-type]


@pytest.fixture
def invoices(cases: Callable[[str], Path]) -> dict[str, tuple[Task, dict[str, Any]]]:
    """Task and reference object by name."""
    folder = cases("documents/invoice2data")
    return {task.task_id: (task, json.loads((folder / f"{task.task_id[8:]}.json").read_text())[0])
            for task in load_tasks("invoices", folder)}


def test_every_reference_invoice_is_right(invoices: dict[str, tuple[Task, dict[str, Any]]]) -> None:
    assert len(invoices) == 9
    for name, (task, wanted) in invoices.items():
        assert of(task, wanted).reward == of(task, [wanted]).reward == 1.0, name
        assert of(task, {}).reward == of(task, dict.fromkeys(wanted)).reward == 0.0, name


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of single values; a list of plain values is one."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, index))
    else:
        yield path


def _changed(value: Any) -> Iterator[Any]:
    """Wrong values that look like the right one."""
    if isinstance(value, list):
        yield from (value[:-1], [*value, value[0]], value[::-1], " ".join(map(str, value)))
    elif isinstance(value, int | float):
        yield from (value + 1, -value - 1, value * 10 + 3, f"{value} {value + 1}", "", [value], f"{value} or 2")
    else:
        yield from (f"{value}1", f"x {value}", 0, [value, "x"][:1], f"{value} / {value}")


def test_each_single_error_costs_exactly_its_field(invoices: dict[str, tuple[Task, dict[str, Any]]]) -> None:
    tried = 0
    for name, (task, wanted) in invoices.items():
        paths = list(_leaves(wanted))
        for path in paths:
            *place, last = path
            for index in range(20):
                answer = copy.deepcopy(wanted)
                holder = answer
                for step in place:
                    holder = holder[step]
                changes = list(_changed(holder[last]))
                if index >= len(changes):
                    break
                if changes[index] == holder[last]:
                    continue
                holder[last] = changes[index]
                surplus = max(0, len(changes[index]) - len(wanted[last])) if isinstance(wanted.get(last), list) and \
                    isinstance(changes[index], list) and not place else 0
                score = of(task, answer)
                assert score.reward == pytest.approx(2 * (len(paths) - 1) / (2 * len(paths) + surplus)), (
                    name, path, changes[index], {k: v for k, v in score.evidence["verdicts"].items() if v != "right"})
                tried += 1
    assert tried > 1000


def test_amounts_and_dates_as_the_real_documents_write_them(invoices: dict[str, tuple[Task, dict[str, Any]]]) -> None:
    as_written: dict[str, dict[str, Any]] = {
        "invoice-coolblue1": {"amount": "€ 717,97", "amount_untaxed": "593,36 EUR", "date": "19 april 2014"},
        "invoice-saeco": {"amount": "49,99", "amount_tax": "8,68", "date": "8-9-2022", "date_due": "22-9-2022"},
        "invoice-Orlen": {"amount": "316,83 PLN", "date": "01.01.2021", "vat": "7740001454"},
        "invoice-AzureInterior": {"amount": "$ 279.84", "date": "03/20/2023", "date_due": "04/04/2023"},
        "invoice-custom-basic": {"amount": "123.45 EUR", "date": "2022/09/27"}}
    for name, more in as_written.items():
        task, wanted = invoices[name]
        assert of(task, {**wanted, **more}).reward == 1.0, name
    swapped = {"amount": "€ 717.97", "amount_untaxed": "593.36 EUR", "date": "4/19/14 "}
    task, wanted = invoices["invoice-coolblue1"]
    assert of(task, {**wanted, **swapped}).reward < 0.97 and of(task, {**wanted, "amount": "$ 717,97"}).reward < 1.0
    task, wanted = invoices["invoice-saeco"]
    assert of(task, {**wanted, "date": "9-8-2022"}).reward < 1.0, "day first, as the document has it"


def test_dumping_every_number_of_a_real_page_does_not_pay(invoices: dict[str, tuple[Task, dict[str, Any]]]) -> None:
    for name, (task, wanted) in invoices.items():
        text = task.files[task.hidden["sources"][0]].decode()
        words = [str(word) for word in text.split()]
        assert of(task, dict.fromkeys(wanted, words)).reward < 0.05, name
        assert of(task, {f"key{index}": word for index, word in enumerate(words)}).reward == 0.0, name


def test_the_real_pdfs_are_read(cases: Callable[[str], Path]) -> None:
    for name, text in [("saeco", "VF1005193039"), ("coolblue1", "593,36"), ("AzureInterior", "279.84")]:
        data = cases(f"documents/invoice2data/{name}.pdf").read_bytes()
        assert text in "".join(pages.pages_of(f"{name}.pdf", data))


def test_money_is_exact() -> None:
    assert of(asking(), {"total": Decimal("7.499999999")}).reward == 0.0
