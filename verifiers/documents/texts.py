"""Texts as a reader sees them: width, case, encoding, spaces, and kinds of quotes and dashes make no difference."""

from __future__ import annotations

import unicodedata

_SAME = {**dict.fromkeys(map(ord, "‐‑‒–—−"), "-"), **dict.fromkeys(map(ord, "‘’‚‛´`"), "'"),
         **dict.fromkeys(map(ord, "“”„‟«»"), '"')}


def folded(text: str) -> str:
    plain = unicodedata.normalize("NFKC", text.translate(_SAME)).casefold()
    return " ".join("".join(mark for mark in plain if unicodedata.category(mark) != "Cf").split())
