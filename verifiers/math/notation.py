"""An answer as people write it, told apart: hedges refused; percent sign, currency and unit off; plain text such as
`sqrt(2)/2` or `3 1/2` turned into LaTeX; a list into its elements. No evaluation happens here.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction
from typing import NamedTuple

from verifiers.math.exact import Number, plain_number
from verifiers.number_words import number_in_words

HEDGES = re.compile(
    r"(?<!\\)\b(?:either|maybe|perhaps|possibly|probably|likely|approximately|approx|about|around|roughly|nearly|"
    r"almost|between|not|isn'?t|wrong|incorrect|less|greater|fewer|more|under|over|least|most|unless|other|another|"
    r"alternatively|versus|vs|unknown|guess|range|any|all|some|to|up|through|thru|instead)\b|\\approx|\\sim\b|≈|~|\?|"
    r"\.\.\.|…|\\[lc]?dots|\\lor|\\vee", re.IGNORECASE)
_OPERATORS = re.compile(
    r"\b(?:half|twice|double|triple|times|plus|minus|negative|squared?|cubed?|root|factorial|divided|multiplied|of|"
    r"zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty)\b", re.IGNORECASE)
"""Words that do something to the number beside them."""
SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}
CURRENCIES = {"$": "dollar", "€": "euro", "£": "pound", "¥": "yen"}
UNITS = {
    "mm": "millimeter", "cm": "centimeter", "dm": "decimeter", "m": "meter", "km": "kilometer", "in": "inch",
    "ft": "foot", "feet": "foot", "yd": "yard", "mi": "mile", "mg": "milligram", "g": "gram", "kg": "kilogram",
    "lb": "pound", "oz": "ounce", "ml": "milliliter", "l": "liter", "s": "second", "sec": "second", "min": "minute",
    "h": "hour", "hr": "hour", "°": "degree", "deg": "degree", "usd": "dollar", "eur": "euro", "gbp": "pound",
    "¢": "cent", "metre": "meter", "litre": "liter", "inches": "inch", "pence": "penny", "pennies": "penny"}
FAMILIES = (
    {"millimeter", "centimeter", "decimeter", "meter", "kilometer", "inch", "foot", "yard", "mile"},
    {"milligram", "gram", "kilogram", "pound", "ounce", "ton"},
    {"milliliter", "liter", "gallon", "cup", "quart", "pint"},
    {"second", "minute", "hour", "day", "week", "month", "year"}, {"degree", "radian"},
    {"dollar", "cent", "euro", "pound", "penny", "yen"})
"""Units of one kind: 5 kilometers is no answer where the task speaks of meters."""
_RAISED, _LOWERED = re.compile("[⁺⁻]?[⁰¹²³⁴-⁹]+"), re.compile("[₀-₉]+")
"""Left to Unicode's normal form, ten to the fourth is 104."""
_SETS = dict.fromkeys(("all real numbers", "all reals", "all real values"), "\\mathbb{R}") | dict.fromkeys(
    ("no solution", "no solutions", "no real solution", "no real solutions", "empty set", "the empty set", "{}",
     "\\{\\}", "\\{ \\}"), "\\emptyset")
"""Sets in words."""
_RADIX = re.compile(r"([0-9][0-9A-Fa-f]*|[A-F]+(?=_\{?16)) ?_ ?\{?(\d{1,2})\}?")
_VULGAR = re.compile("[\u00bc-\u00be\u2150-\u215e\u2189]")
_DASHES = dict.fromkeys(map(ord, "‐‑‒–—−"), "-")
_LATEX = {"\\left": "", "\\right": "", "\\!": "", "\\,": " ", "\\;": " ", "\\:": " ", "\\ ": " ",
          "\\quad": " ",
          "\\displaystyle": "", "\\dfrac": "\\frac", "\\tfrac": "\\frac", "\\cfrac": "\\frac", "\\%": "%", "\\$": "$",
          "\\varnothing": "\\emptyset ", "\\lt": "<", "\\gt": ">",
          "{,}": ",", "\\degree": "°", "^{\\circ}": "°", "^\\circ": "°", "\\lbrace": "\\{", "\\rbrace": "\\}"}
_PLAIN = {"**": "^", "≤": "\\le ", "≥": "\\ge ", "<=": "\\le ", ">=": "\\ge ", "!=": "\\ne ", "≠": "\\ne ",
          "∞": "\\infty ", "π": "\\pi ", "×": "\\times ", "·": "\\cdot ", "÷": "/", "∪": "\\cup ", "∩": "\\cap ",
          "∅": "\\emptyset ", "∈": "\\in ", "±": "\\pm ", "θ": "\\theta ", "*": "\\cdot "}
_NUMERAL = (r"-? ?(?:\d(?:[\d,]*\d)?(?:\.\d+)?|\.\d+)(?: ?/ ?\d+| \d+/\d+)?(?:[eE][-+]?\d+)?"
            r"|-?\\frac ?\{?-?\d+\}? ?\{?\d+\}?")
_STYLES = "text(?:bf|it|rm|normal|up|sf|tt)?|mathrm|mathit|mathsf|mbox|operatorname|mathbf|emph|rm"
_PERCENT = r"(?:%|percent(?:age)?\b|per cent\b|pct\b)"
_SET = re.compile(r"\\?\{((?:[^{}]|\{[^{}]*\})*?)\\?\}")
"""One set alone, not a union of some."""
_OF_SETS = re.compile(r"\\(?:cup|cap|setminus)(?![a-z])|[∪∩]")
_NAMED = re.compile(r"^\([A-Za-z](?:_?\w)?(?:, ?[A-Za-z](?:_?\w)?)+\) ?= ?(?=\()")
"""`(x, y) =` before a pair."""
_ROWS = re.compile(r"\[\s*(\[[^\[\]]+\](?:\s*[,;]\s*\[[^\[\]]+\])*)\s*\]")


class Unclear(ValueError):
    """What was answered is no one answer. Its text says why."""


class Written(NamedTuple):
    """One answer, told apart."""

    plain: str
    """Normal form of the whole, for people and for comparing words."""
    latex: str
    number: Number | None
    """The value where it is a plain number: exact, without percent sign and unit, with scale words multiplied in."""
    percent: bool = False
    unit: str = ""
    items: tuple[str, ...] = ()
    """The LaTeX of the elements, where several values are wanted."""

    @property
    def is_words(self) -> bool:
        """No mathematics in it: a name, a day, yes or no, the capital letter of a choice."""
        bare = self.plain.strip("() ")
        if self.number is not None or not re.fullmatch(r"[A-Za-z](?:[A-Za-z' -]*[A-Za-z])?", bare):
            return False
        return bare.lower() == "no" or (len(bare) == 1 and bare.isupper()) or (
            len(bare) > 2 and bool(re.search("[aeiouAEIOU]", bare)))


def write(text: str, listed: bool = False, beside: str = "") -> Written:
    """`listed`: several values are wanted. `beside`: the wanted answer, whose words are no hedges. Raises Unclear."""
    plain = clean(text, listed)
    plain = _SETS.get(plain.lower(), plain)
    allowed = {hedge.lower() for hedge in HEDGES.findall(clean(beside, listed))}
    if hedges := [hedge for hedge in HEDGES.findall(plain) if hedge.lower() not in allowed]:
        raise Unclear(f"a hedge: `{hedges[0]}`")
    items = elements(plain)
    if listed:
        return Written(plain, "", None, items=tuple(latex(item) for item in items))
    is_set = _SET.fullmatch(plain) and _OF_SETS.search(beside)
    if not is_set and sum(bool(re.search(r"[\d\\]|^[A-Za-z]$|[=<>]", item)) for item in items) > 1:
        raise Unclear("several answers")
    return _single(plain)


def radix(plain: str) -> tuple[str, int] | None:
    """Digits and base of `1A_{16}`; None for anything else."""
    found = _RADIX.fullmatch(plain)
    return (found[1].upper(), int(found[2])) if found else None


def _single(plain: str) -> Written:
    number = plain_number(plain)
    if number is not None:
        return Written(plain, latex(plain), number)
    told = _digits_for_words(plain)
    found = re.fullmatch(rf"(?P<before>[^\d\\{{}}^=()\[\]]*?)(?P<number>{_NUMERAL})(?P<after>[^\d\\{{}}^=()\[\]]*"
                         rf"(?:\^\{{?[23]\}}?)?)", told)
    name = found and found["before"][-1:].isalpha() and found["number"][0].isdigit()  # such as A2
    if found and not name and (value := plain_number(found["number"])) is not None:
        said = _quantity(found["before"], value, found["after"].strip())
        if said is not None:
            number, percent, unit = said
            return Written(plain, latex(found["number"]), number, percent, unit)
    return Written(plain, latex(plain), None)


def _digits_for_words(plain: str) -> str:
    """`seven apples` as `7 apples`; what does not begin with one number in words, and it alone, stays as it is."""
    words = plain.split(" ")
    for end in range(len(words), 0, -1):
        value, rest = number_in_words(" ".join(words[:end])), " ".join(words[end:])
        if value is not None and not _OPERATORS.search(rest) and not re.search(r"\b(?:or|and)\b|\d", rest):
            return f"{value} {rest}".strip()
    return plain


def _quantity(before: str, value: Number, after: str) -> tuple[Number, bool, str] | None:
    """Number, percent, unit of `She pays $18 a day`; None: it is an expression and no quantity."""
    before, sign, currency = before.strip(), 1, ""
    if before[-1:] in CURRENCIES:
        before, currency = before[:-1].strip(), CURRENCIES[before[-1]]
    if found := re.search(r"(?:^|\s)(?:-|minus|negative)$", before):
        before, sign = before[:found.start()].strip(), -1
    percent = bool(re.match(_PERCENT, after))
    after = re.sub(f"^{_PERCENT}", "", after).strip()
    if re.fullmatch(r",(?:\s*[A-Za-z']{2,},?)*", after) and not re.search(r"\bor\b", after):
        after = ""  # a clause behind the number says nothing of it
    if _OPERATORS.search(before) or _OPERATORS.search(re.sub(r"^(?:square|cubic) ", "", after)):
        return None
    named = re.sub(r"\b[A-Za-z] (?=(?:is|are|equals|be)$)", "", before)  # `the largest n is`
    if not re.fullmatch(r"(?:(?:[A-Za-z][A-Za-z',:-]++|[aAI])\s*+){0,10}+", named):
        return None
    scale = Fraction(1)
    while (word := re.match(r"[A-Za-z]+", after)) and word[0].lower().rstrip("s") in SCALES:
        scale *= SCALES[word[0].lower().rstrip("s")]
        after = after[word.end():].strip()
    if after[:1] in CURRENCIES and not currency:
        currency, after = CURRENCIES[after[0]], after[1:].strip()
    if after and not re.fullmatch(r"[A-Za-z°¢][A-Za-z°/' .,-]*(?:\^?\{?[23]\}?)?|°", after):
        return None
    if any(letter.lower() not in (*UNITS, "a") for letter in re.findall(r"\b[A-Za-z]\b", after)):
        return None
    number = Number(sign * value.value * scale, value.unit * scale if value.unit else None, value.digits)
    return number, percent, currency or unit_of(after)


def unit_of(text: str) -> str:
    """A unit in one spelling: `cm^2` and `square centimeters` are one, `mph` and `miles per hour` too; a noun that is
    no unit of measure as it is."""
    text = {"mph": "mile/hour", "kph": "kilometer/hour", "kmh": "kilometer/hour"}.get(text, text).lower().strip(" .")
    return "/".join(_one_unit(part) for part in re.split(r"\s*/\s*|\s+per\s+", text))


def _one_unit(text: str) -> str:
    square = re.search(r"\^?\{?2\}?$|^(?:square|sq\.?) ", text)
    power = "square " if square else "cubic " if re.search(r"\^?\{?3\}?$|^(?:cubic|cu\.?) ", text) else ""
    words = re.sub(r"^(?:square|sq\.?|cubic|cu\.?) |\^?\{?[23]\}?$", "", text).split()
    word = words[0].strip(".,") if words else ""
    known = UNITS.get(word) or UNITS.get(word.rstrip("s"))
    return power + (known or (word[:-1] if word.endswith("s") and len(word) > 3 else word))


def base_of(unit: str) -> str:
    return unit.split("/")[0].removeprefix("square ").removeprefix("cubic ")


def clean(text: str, listed: bool = False) -> str:
    """One normal form: no delimiters of mathematics, no layout, plain dashes and digits. A comma between groups of
    three digits is dropped, but not in brackets, nor where several values are wanted."""
    text = _VULGAR.sub(lambda mark: " " + unicodedata.normalize("NFKC", mark[0]).replace("\u2044", "/"), text)
    text = _RAISED.sub(_raised, text)
    text = _LOWERED.sub(lambda run: f"_{{{unicodedata.normalize('NFKC', run[0])}}}", text)
    text = "".join(map(_ascii_digit, unicodedata.normalize("NFKC", text.translate(_DASHES))))
    text = re.sub(r"(?<=\d)(?:\\[,;:!]|\\thinspace)(?=\d{3}(?!\d))", "", text)
    text = re.sub(r"(?<!\\)\$\$?([^$]+)(?<!\\)\$\$?|\\\((.*?)\\\)|\\\[(.*?)\\\]",
                  lambda found: f" {found[1] or found[2] or found[3]} ", text, flags=re.DOTALL)
    text = re.sub(r"(?<=\d),\s*\\!\s*(?=\d{3}(?!\d))", ",", text)
    for old, new in _LATEX.items():
        text = re.sub((r"(?<!\\)" if old[0] == "\\" else "") + re.escape(old) + (
            r"(?![A-Za-z])" if old[-1].isalpha() else ""), new.replace("\\", r"\\"), text)
    text = re.sub(r"(?<=[\d}])~", " ", text)
    text = re.sub(r"\[?\\begin\{array\}\{[^{}]*\}(.*?)\\end\{array\}\]?", r"\\begin{pmatrix}\1\\end{pmatrix}", text)
    text = re.sub(rf"\\(?:{_STYLES})\s*\{{([^{{}}]*)\}}", r" \1 ", text)
    text = " ".join(text.split()).rstrip(".,;:").strip()
    if not listed and not re.search(r"[({\[]", text):
        text = re.sub(r"(?<=\d) ?[xX] ?(?=10 ?\^)", r"\\times ", text)
        text = re.sub(r"(?<![\d,.])(\d{1,3}(?:,\d{3})+)(?![\d,])", lambda found: found[1].replace(",", ""), text)
        text = re.sub(r"(?<![\d,./] )(?<![\d,./])([1-9]\d{0,2}(?: \d{3})+)(?! ?[\d,/^])",
                      lambda found: found[1].replace(" ", ""), text)
    text = re.sub(r"(?<![\d.])(\d*)\.(\d{0,9})\\(?:overline|bar)\s*\{(\d{1,9})\}", _repeating, text)
    return _intervals(re.sub(r"^=\s*", "", text))


def _raised(run: re.Match[str]) -> str:
    power = unicodedata.normalize("NFKC", run[0]).replace("\u2212", "-")
    return f"^{power}" if len(power) == 1 else f"^{{{power}}}"


def _ascii_digit(mark: str) -> str:
    return str(unicodedata.decimal(mark)) if mark.isdecimal() else mark


def _intervals(text: str) -> str:
    """`]0, 1[` is `(0, 1)`."""
    return re.sub(r"([\[\]])([^\[\]]*[,;][^\[\]]*)([\[\]])", lambda found: "".join((
        "(" if found[1] == "]" else "[", found[2].replace(";", ","), ")" if found[3] == "[" else "]")), text)


def _repeating(found: re.Match[str]) -> str:
    """A decimal with a bar over the digits that repeat, as a fraction."""
    whole, fixed, repeated = found.groups()
    under = (10 ** len(repeated) - 1) * 10 ** len(fixed)
    value = Fraction(int(f"{whole}{fixed}{repeated}") - int(f"{whole}{fixed}" or "0"), under)
    return f"{value.numerator}/{value.denominator}"


def elements(plain: str) -> list[str]:
    """Elements of a list: split at commas, semicolons, `and`, `or` outside of brackets; a set's braces are off."""
    inner = _SET.fullmatch(plain)
    body = inner[1] if inner else plain
    parts, depth, start = [], 0, 0
    for found in re.finditer(r"[(\[{]|[)\]}]|[,;]|\s(?:and|or)\s|(?<=[\d)\]}])\s*(?:and|or)\s*(?=[\d(\[{-])", body):
        mark = found[0]
        if mark in "([{":
            depth += 1
        elif mark in ")]}":
            depth -= 1
        elif depth == 0:
            parts.append(body[start:found.start()])
            start = found.end()
    named = (_NAMED.sub("", part.strip()) for part in (*parts, body[start:]) if part.strip())
    return [one for part in named for one in _both_signs(part)]


def _both_signs(part: str) -> list[str]:
    """`3 ± 2` is two values."""
    before, mark, behind = re.sub(r"\\pm(?![A-Za-z])", "±", part).partition("±")
    if not mark or "±" in behind:
        return [part]
    return [f"{before} + {behind}" if before.strip() else behind.strip(), f"{before} - {behind}".strip()]


def is_list(plain: str) -> bool:
    """Whether a wanted answer is several values in any order."""
    return len(elements(plain)) > 1 or bool(_SET.fullmatch(plain))


def latex(plain: str) -> str:
    """LaTeX of plain notation; LaTeX stays as it is."""
    if rows := _ROWS.fullmatch(plain):
        return _matrix(re.findall(r"\[([^\[\]]+)\]", rows[1]))
    for old, new in _PLAIN.items():
        plain = plain.replace(old, new)
    plain = re.sub(r"(?<![A-Za-z\\])(?:infinity|inf|oo)(?![A-Za-z])", r"\\infty ", plain)
    plain = re.sub(r"(?<![A-Za-z\\])(sqrt|√)\s*\(([^()]*)\)", r"\\sqrt{\2}", plain)
    plain = re.sub(r"(?<![A-Za-z\\])(?:sqrt|√)\s*(\w)", r"\\sqrt{\1}", plain)
    plain = re.sub(r"(?<![A-Za-z\\])(pi|theta|alpha|beta|sin|cos|tan|log|ln|exp)(?![A-Za-z])", r"\\\1 ", plain)
    plain = re.sub(r"\\sqrt\s*([A-Za-z\d])", r"\\sqrt{\1}", plain)
    plain = re.sub(r"\\frac\s*(\w)", r"\\frac{\1}", plain)
    plain = re.sub(r"(\\frac\s*\{[^{}]*\})\s*(\w)", r"\1{\2}", plain)
    plain = re.sub(r"\^\s*(-?\d+(?:\.\d+)?)", r"^{\1}", plain)
    plain = re.sub(r"\^\s*\(([^()]*)\)", r"^{\1}", plain)
    plain = re.sub(r"(?<![\d.}])(\d+) (\d+)/(\d+)(?!\d)", r"(\1+\\frac{\2}{\3})", plain)
    return re.sub(r"(\d(?:\.\d+)?)[eE]([-+]?\d+)(?![\d.])", r"\1\\cdot 10^{\2}", plain).strip()


def _matrix(rows: list[str]) -> str:
    return r"\begin{pmatrix}" + r"\\".join("&".join(map(latex, row.split(","))) for row in rows) + r"\end{pmatrix}"
