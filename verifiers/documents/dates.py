"""Reading one calendar date in the ways that documents and people write it. None for what is not exactly one date, or
could be two: 03/04/2024 is read only where the task says which comes first."""

from __future__ import annotations

import datetime
import functools
import re
import unicodedata

from verifiers.documents.numbers import ascii_digits, raised

TEXT_LIMIT = 60
_MONTHS = (
    "january januar januari janvier enero gennaio janeiro stycznia styczen",
    "february februar februari fevrier febrero febbraio fevereiro lutego luty",
    "march marz maerz maart mrt mars marzo marco marca marzec",
    "april avril abril aprile kwietnia kwiecien",
    "may mai mei mayo maggio maio maja maj",
    "june juni juin junio giugno junho czerwca czerwiec",
    "july juli juillet julio luglio julho lipca lipiec",
    "august augustus aout agosto sierpnia sierpien",
    "september septembre septiembre settembre setembro wrzesnia wrzesien",
    "october oktober octobre octubre ottobre outubro pazdziernika pazdziernik",
    "november novembre noviembre novembro listopada listopad",
    "december dezember decembre diciembre dicembre dezembro grudnia grudzien")
_FILLERS = {"of", "de", "del", "the", "den", "dnia", "am", "le", "r"}
_ORDINAL = re.compile(r"(\d{1,2})(?:st|nd|rd|th|er|e|\.|º)?")


def parse(text: str, order: str = "") -> datetime.date | None:
    """`order` is `dmy`, `mdy` or empty (see Locale)."""
    if len(text) > TEXT_LIMIT or raised(text):
        return None
    plain = _plain(ascii_digits(text) or "")
    plain = re.sub(r"[t ]00:00(:00(\.0+)?)?(z|\+00:00)?$", "", plain)
    parts = _numeric(plain, order) or _named(plain)
    if parts is None:
        return None
    try:
        return datetime.date(*parts)
    except ValueError:
        return None


def _plain(text: str) -> str:
    """Lower case without accents; `ł` has no decomposition and is in no month's name."""
    folded = unicodedata.normalize("NFKD", text).casefold()
    return " ".join("".join(mark for mark in folded if not unicodedata.combining(mark)).split())


def _numeric(text: str, order: str) -> tuple[int, int, int] | None:
    if found := re.fullmatch(r"(\d{4})(\d\d)(\d\d)", text, re.ASCII):
        return int(found[1]), int(found[2]), int(found[3])
    if found := re.fullmatch(r"(\d{4}) ?年 ?(\d{1,2}) ?月 ?(\d{1,2}) ?日?", text, re.ASCII):
        return int(found[1]), int(found[2]), int(found[3])
    found = re.fullmatch(r"(\d{4})([-/.]) ?(\d{1,2})\2 ?(\d{1,2})\.?", text, re.ASCII)
    if found:
        return int(found[1]), int(found[3]), int(found[4])
    found = re.fullmatch(r"(\d{1,2})([-/.]) ?(\d{1,2})\2 ?(\d{4}|\d\d)", text, re.ASCII)
    if not found:
        return None
    one, two, year = int(found[1]), int(found[3]), _year(found[4])
    order = order or ("dmy" if found[2] == "." else "")
    if one == two or order == "dmy" or (not order and one > 12):
        return year, two, one
    return (year, one, two) if order == "mdy" or two > 12 else None


def _year(text: str) -> int:
    year = int(text)
    return year if len(text) == 4 else year + (2000 if year < 70 else 1900)


def _named(text: str) -> tuple[int, int, int] | None:
    """`19 april 2014`, `March 20, 2023`, `Fri, 1. Mar 24`, `2024 March 1`: a month's name, a day, a year."""
    text = re.sub(r"^[^\W\d]+\.?, *", "", text)
    words = [word for word in re.split(r"[ ,/-]+", text) if word and word not in _FILLERS]
    months = [month for word in words if (month := _month(word.rstrip(".")))]
    numbers = [word for word in words if not _month(word.rstrip("."))]
    if len(months) != 1 or len(numbers) != 2 or len(words) != 3:
        return None
    if re.fullmatch(r"\d{4}", numbers[0], re.ASCII):
        numbers.reverse()
    day = _ORDINAL.fullmatch(numbers[0])
    if day is None or not re.fullmatch(r"\d{4}|\d\d", numbers[1], re.ASCII):
        return None
    return _year(numbers[1]), months[0], int(day[1])


@functools.lru_cache(maxsize=1024)
def _month(word: str) -> int:
    """The month that a name, or at least three letters of it, stands for; 0: none, or more than one."""
    if len(word) < 3 or not word.isalpha():
        return 0
    found = {index for index, names in enumerate(_MONTHS, start=1) for name in names.split() if name.startswith(word)}
    return found.pop() if len(found) == 1 else 0
