"""The one final answer in what was handed in: the content of `\\boxed{}`, what stands behind `####` or `answer is`, or,
without such a mark, the whole text. Two marks that differ, or numbers behind the mark's line, are no final answer.
"""

from __future__ import annotations

import re

TEXT_LIMIT = 16 << 10
FINAL_LIMIT = 400
_SAYS = re.compile(r"(?:final answer|answer)(?:\s+is)?\s*[:=]?\s*(?=\S)|(?:answer is)\s*:?\s*", re.IGNORECASE)
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BARE_BOX = re.compile(r"\\(?:boxed|fbox)(?:\s+|(?=\d))([^\s{}$\\]+)")
_ONLY_A_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{(.*)\}", re.DOTALL)
_DISPLAYED = re.compile(r"(\\\[|\$\$)\s*\n\s*([^\n$]*?)\s*\n\s*(\\\]|\$\$)")
"""A formula on a line of its own."""
_MARKUP = re.compile(r"\*\*|__(?=\S)|`|^\s*>|<[^<>=]{1,20}>")
_FORMULA = re.compile(r"\$\$?([^$]+)\$\$?|\\\((.+?)\\\)|\\\[(.+?)\\\]")


class NoFinal(ValueError):
    """There is no final answer, or more than one. Its text says which."""


def final_answer(text: str | None, listed: bool = False) -> str:
    """`listed`: several values are wanted, so several boxes are one answer together."""
    if text is not None and len(text) > TEXT_LIMIT:
        raise NoFinal(f"longer than {TEXT_LIMIT} characters")
    if text is None or not text.strip():
        raise NoFinal("nothing was answered")
    text = _DISPLAYED.sub(r"\1 \2 \3", text)
    found = _boxed(text, listed) or _marked(text) or _said(text)
    if found is None:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) > 1:
            raise NoFinal("several lines and no mark of the final answer")
        found = lines[0]
    found = _MARKUP.sub("", found).strip().lstrip(":").strip()
    if not found:
        raise NoFinal("nothing stands at the mark of the final answer")
    if len(found) > FINAL_LIMIT:
        raise NoFinal(f"a final answer of more than {FINAL_LIMIT} characters")
    return found


def _boxed(text: str, listed: bool) -> str | None:
    text = _BARE_BOX.sub(lambda found: f"\\boxed{{{found[1]}}}", text)
    boxes, end = [], 0
    for mark in _BOX.finditer(text):
        if mark.start() < end:
            continue  # A box in a box.
        end = _closing(text, mark.end())
        boxes.append(_unboxed(text[mark.end():end - 1].strip()))
    if listed and len(boxes) > 1 and all(boxes):
        boxes = [", ".join(boxes)]
    return _only(boxes, text[end:])


def _unboxed(text: str) -> str:
    """Without boxes around the whole of it."""
    while (inner := _ONLY_A_BOX.fullmatch(text)) and _closing(text, inner.start(1)) == len(text):
        text = inner[1].strip()
    return text


def _closing(text: str, start: int) -> int:
    """Behind the brace that closes the one before `start`."""
    depth = 1
    for index in range(start, len(text)):
        if text[index] in "{}" and text[index - 1] != "\\":
            depth += 1 if text[index] == "{" else -1
            if depth == 0:
                return index + 1
    raise NoFinal("a box that is not closed")


def _marked(text: str) -> str | None:
    """What stands behind `####` on its line."""
    parts = text.split("####")[1:]
    lines = [part.strip("\n ").split("\n")[0].strip() if part.strip() else "" for part in parts]
    return _only(lines, parts[-1].strip("\n ").partition("\n")[2] if parts else "")


def _said(text: str) -> str | None:
    """What stands behind `answer is` or `answer:` on its line."""
    marks = list(_SAYS.finditer(_MARKUP.sub("", text)))
    if not marks:
        return None
    plain = _MARKUP.sub("", text)
    lines = [plain[mark.end():].split("\n")[0].strip() for mark in marks]
    return _only(lines, plain[marks[-1].end():].partition("\n")[2])


def _only(found: list[str], behind: str) -> str | None:
    """The one answer, if all are the same and nothing that may be another stands behind them."""
    if not found:
        return None
    if len({"".join(one.split()).rstrip(".") for one in found}) > 1:
        raise NoFinal("several final answers")
    if re.search(r"\d|\\(?:frac|sqrt|pi)|\b(?:or|either|not|wrong|maybe)\b", behind, re.IGNORECASE):
        raise NoFinal("something that may be another answer stands behind the final answer")
    return found[0]


def only_formula(final: str) -> str | None:
    """The one formula of a sentence that says no number beside it."""
    found = list(_FORMULA.finditer(final))
    if len(found) != 1 or re.search(r"[\d\\$]", _FORMULA.sub(" ", final)):
        return None
    return next(part for part in found[0].groups() if part is not None)
