"""The text of a PDF, page by page. A PDF may hang its reader, whose own limits bound what a stream
unpacks to: verifiers run this in a process of its own."""

from __future__ import annotations

import base64
from typing import Any

PAGES_LIMIT = 200
TEXT_LIMIT = 2 << 20


def read_pdf(data: str) -> dict[str, Any]:
    """`pages`, or `problem`: why there are none."""
    import io

    import pypdf

    raw = base64.b64decode(data)
    if b"%PDF-" not in raw[:1024]:
        return {"problem": "not a PDF"}
    try:
        reader = pypdf.PdfReader(io.BytesIO(raw))
        if reader.is_encrypted and not _opened(reader):
            return {"problem": "an encrypted PDF"}
        return _pages(reader)
    except MemoryError:
        raise
    except (Exception, RecursionError) as wrong:
        return {"problem": f"a PDF that cannot be read ({type(wrong).__name__}: {str(wrong)[:200]})"}


def _opened(reader: Any) -> bool:
    """With the empty password, as most viewers do."""
    try:
        return bool(reader.decrypt(""))
    except Exception:
        return False


def _pages(reader: Any) -> dict[str, Any]:
    if len(reader.pages) > PAGES_LIMIT:
        return {"problem": f"a PDF of more than {PAGES_LIMIT} pages"}
    pages: list[str] = []
    for page in reader.pages:
        pages.append(page.extract_text() or "")
        if sum(map(len, pages)) > TEXT_LIMIT:
            return {"problem": f"a PDF with more than {TEXT_LIMIT} characters"}
    return {"pages": pages}
