"""The problems of the built-in coding set: data only."""

from __future__ import annotations

from typing import Any, NamedTuple


class Problem(NamedTuple):
    entry: str
    signature: str
    statement: str
    difficulty: float
    tests: list[tuple[tuple[Any, ...], Any]]
    reference: str
    partial: str
    wrong: str


PROBLEMS = [
    Problem(
        "run_lengths", "run_lengths(text: str) -> list[tuple[str, int]]",
        "It gives each run of equal characters as a pair of the character and its length, in order.", 0.2,
        [(("",), []), (("a",), [("a", 1)]), (("aaabcc",), [("a", 3), ("b", 1), ("c", 2)]),
         (("abab",), [("a", 1), ("b", 1), ("a", 1), ("b", 1)]), (("  x",), [(" ", 2), ("x", 1)]),
         (("ßßé",), [("ß", 2), ("é", 1)])],
        """def run_lengths(text):
    runs = []
    for character in text:
        if runs and runs[-1][0] == character:
            runs[-1] = (character, runs[-1][1] + 1)
        else:
            runs.append((character, 1))
    return runs
""",
        """def run_lengths(text):
    counts = {}
    for character in text:
        counts[character] = counts.get(character, 0) + 1
    return list(counts.items())
""",
        """def run_lengths(text):
    return [[character, 1] for character in text + "."]
"""),
    Problem(
        "seconds", "seconds(text: str) -> int | None",
        "It reads a duration such as `1h30m5s` (hours, minutes, seconds, each at most once and in this order, at least "
        "one of them) and gives its seconds; None for any other text.", 0.4,
        [(("5s",), 5), (("2m",), 120), (("1h30m5s",), 5405), (("90m",), 5400), (("1h5s",), 3605), (("",), None),
         (("5",), None), (("5s1m",), None), (("1m1m",), None), (("-5s",), None)],
        """import re


def seconds(text):
    found = re.fullmatch(r"(?:(\\d+)h)?(?:(\\d+)m)?(?:(\\d+)s)?", text)
    if not text or not found:
        return None
    hours, minutes, rest = (int(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + rest
""",
        """def seconds(text):
    total, number = 0, ""
    for character in text:
        if character.isdigit():
            number += character
        elif number:
            total += int(number) * {"h": 3600, "m": 60, "s": 1}[character]
            number = ""
    return total or None
""",
        """def seconds(text):
    return text.count("s")
"""),
    Problem(
        "merged", "merged(intervals: list[list[int]]) -> list[list[int]]",
        "It joins closed intervals [low, high] that overlap or touch at a point, and gives them sorted.", 0.4,
        [(([],), []), (([[1, 3]],), [[1, 3]]), (([[5, 6], [1, 3]],), [[1, 3], [5, 6]]), (([[1, 4], [2, 3]],), [[1, 4]]),
         (([[1, 2], [2, 5]],), [[1, 5]]), (([[3, 9], [1, 2], [2, 4], [12, 12]],), [[1, 9], [12, 12]])],
        """def merged(intervals):
    joined = []
    for low, high in sorted(intervals):
        if joined and low <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], high)
        else:
            joined.append([low, high])
    return joined
""",
        """def merged(intervals):
    joined = []
    for low, high in intervals:
        if joined and low <= joined[-1][1]:
            joined[-1][1] = high
        else:
            joined.append([low, high])
    return joined
""",
        """def merged(intervals):
    return [[min(low for low, _ in intervals), max(high for _, high in intervals) + 1]]
"""),
    Problem(
        "digits", "digits(number: int, base: int) -> list[int]",
        "It gives the digits of a number that is not negative in a base from 2 up, the highest first; 0 has one digit.",
        0.3,
        [((0, 2), [0]), ((5, 2), [1, 0, 1]), ((255, 16), [15, 15]), ((1000, 10), [1, 0, 0, 0]),
         ((3**40, 3), [1] + [0] * 40), ((59, 60), [59])],
        """def digits(number, base):
    found = [number % base]
    while number >= base:
        number //= base
        found.append(number % base)
    return found[::-1]
""",
        """def digits(number, base):
    found = []
    while number:
        found.append(number % base)
        number = int(number / base)
    return found[::-1]
""",
        """def digits(number, base):
    return [int(digit) for digit in str(number + base)]
"""),
    Problem(
        "by_length", "by_length(words: list[str]) -> dict[int, list[str]]",
        "It groups words by their length; in a group they keep their order, and each word stands there once.", 0.3,
        [(([],), {}), ((["a"],), {1: ["a"]}), ((["bb", "a", "cc"],), {2: ["bb", "cc"], 1: ["a"]}),
         ((["a", "b", "a"],), {1: ["a", "b"]}), ((["", "x", ""],), {0: [""], 1: ["x"]})],
        """def by_length(words):
    groups = {}
    for word in words:
        group = groups.setdefault(len(word), [])
        if word not in group:
            group.append(word)
    return groups
""",
        """def by_length(words):
    groups = {}
    for word in words:
        groups.setdefault(len(word), []).append(word)
    return groups
""",
        """def by_length(words):
    return {str(len(word)): word for word in words} or None
"""),
    Problem(
        "spiral", "spiral(rows: list[list[int]]) -> list[int]",
        "It reads a rectangular matrix clockwise from the top left corner to the middle.", 0.5,
        [(([],), []), (([[7]],), [7]), (([[1, 2, 3]],), [1, 2, 3]), (([[1, 2], [3, 4]],), [1, 2, 4, 3]),
         (([[1], [2], [3]],), [1, 2, 3]), (([[1, 2, 3], [4, 5, 6], [7, 8, 9]],), [1, 2, 3, 6, 9, 8, 7, 4, 5]),
         (([[1, 2, 3, 4], [5, 6, 7, 8]],), [1, 2, 3, 4, 8, 7, 6, 5])],
        """def spiral(rows):
    left, path = [list(row) for row in rows], []
    while left:
        path += left.pop(0)
        left = [list(column) for column in zip(*left)][::-1]
    return path
""",
        """def spiral(rows):
    if len(rows) < 2:
        return [number for row in rows for number in row]
    middle = [row[-1] for row in rows[1:-1]]
    return rows[0] + middle + rows[-1][::-1]
""",
        """def spiral(rows):
    return sorted((number for row in rows for number in row), reverse=True) + [0]
"""),
    Problem(
        "mean_and_spread", "mean_and_spread(values: list[float]) -> tuple[float, float] | None",
        "It gives the mean and the difference of the largest and the smallest value, as a tuple; None without values.",
        0.2,
        [(([],), None), (([2.0],), (2.0, 0.0)), (([1.0, 2.0, 6.0],), (3.0, 5.0)), (([-1.5, 1.5],), (0.0, 3.0)),
         (([4, 4, 4, 4],), (4.0, 0))],
        """def mean_and_spread(values):
    if not values:
        return None
    return sum(values) / len(values), max(values) - min(values)
""",
        """def mean_and_spread(values):
    if not values:
        return None
    return sum(values) / len(values), values[-1] - values[0] if len(values) < 3 else 0.0
""",
        """def mean_and_spread(values):
    return [sum(values) / max(len(values), 1), 0]
"""),
    Problem(
        "newest", "newest(versions: list[str]) -> str | None",
        "It gives the highest of versions such as `1.10.2`: numbers compared part by part, a missing part counts as 0; "
        "the first of equal ones; None without versions.", 0.4,
        [(([],), None), ((["1.0"],), "1.0"), ((["1.9", "1.10"],), "1.10"), ((["2", "1.99.99"],), "2"),
         ((["1.2", "1.2.0"],), "1.2"), ((["0.9.9", "0.10.0", "0.9.10"],), "0.10.0")],
        """def newest(versions):
    def parts(version):
        numbers = [int(part) for part in version.split(".")]
        while numbers and numbers[-1] == 0:
            numbers.pop()
        return numbers

    return max(versions, key=parts, default=None)
""",
        """def newest(versions):
    return max(versions, default=None)
""",
        """def newest(versions):
    return min(versions + ["0"])
"""),
]
