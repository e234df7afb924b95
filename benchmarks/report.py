"""Runs the benchmarks, each in a process of its own, and writes `benchmarks/results.json` and `docs/benchmarks.md`.

    python benchmarks/report.py [NAME ...] [--quick] [--seed S] [--table]

All of them without a NAME. Results of benchmarks that were not asked for stay as they are; every one bears its own date
and machine. `--table` measures nothing and writes the page anew.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness import REPOSITORY, machine, parser

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.json"
PAGE = REPOSITORY / "docs" / "benchmarks.md"
NAMES = ("log", "sink", "lake_sql", "tail", "startup", "sandbox", "sandbox_leaks", "sandbox_docker",
         "sandbox_snapshots", "verification", "rescore", "production", "learning")
_HEAD = """# Benchmarks

`make bench` measures everything anew and writes this page and `benchmarks/results.json`; with `ARGS=--quick` it takes
a few minutes, with `ARGS="log sink"` it measures those only. One alone: `.venv/bin/python benchmarks/log.py --help`.
Ratios are measured side by side in one run, rounds interleaved, median. `-` under *holds*: no target is set, or it
could not be measured there.
"""


def main() -> int:
    options = parser(__doc__)
    options.add_argument("names", nargs="*", metavar="NAME", help=", ".join(available()))
    options.add_argument("--table", action="store_true", help="only write the page from the results that are there")
    chosen = options.parse_args()
    if unknown := set(chosen.names) - set(available()):
        options.error(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(available())}")
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    failed = []
    for name in () if chosen.table else chosen.names or available():
        measured = _measure(name, chosen.quick, chosen.seed)
        failed += [name] * (measured is None)
        if measured is not None:
            found[name] = measured
            RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(found), encoding="utf-8")
    for name in failed:
        print(f"benchmark {name} failed; its last results stand", file=sys.stderr)
    return 1 if failed else 0


def available() -> list[str]:
    return [name for name in NAMES if (FOLDER / f"{name}.py").exists()]


def _measure(name: str, quick: bool, seed: int) -> dict[str, Any] | None:
    """A target that is missed is a result; a benchmark that breaks is not one."""
    print(f"{name} ...", file=sys.stderr, flush=True)
    command = [sys.executable, str(FOLDER / f"{name}.py"), "--seed", str(seed), *["--quick"] * quick]
    began, load = time.monotonic(), os.getloadavg()[0]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, cwd=REPOSITORY)
    sys.stdout.write(done.stdout)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    missed = any(one["holds"] is False for one in answers)
    if not answers or done.returncode != int(missed):
        return None
    return {"date": datetime.now(UTC).isoformat(timespec="seconds"), "quick": quick, "seed": seed,
            "seconds": round(time.monotonic() - began),
            "load": [round(load, 1), round(os.getloadavg()[0], 1)], "machine": machine(), "answers": answers}


def page(found: dict[str, Any]) -> str:
    parts = [_HEAD]
    for name in (name for name in NAMES if name in found):
        one = found[name]
        machine, load = one["machine"], one["load"]
        versions = ", ".join(f"{key} {value}" for key, value in machine.items() if key not in _HARDWARE)
        parts.append(
            f"\n## {name}\n\n{one['date'][:10]}, {machine['cores']} cores, {machine['memory_gib']} GiB, load {load[0]} "
            f"before and {load[1]} after; seed {one['seed']}, {one['seconds']} s{', quick' if one['quick'] else ''}; "
            f"{versions}.\n\n| question | value | target | holds | rounds | against |\n|---|---|---|---|---|---|\n")
        parts += [f"| {_cell(line['question'])} | {_number(line['value'])} {_cell(line['unit'])} | "
                  f"{_cell(line['target'])} | {_HOLDS[line['holds']]} | {line['rounds']} | {_cell(line['against'])} |\n"
                  for line in one["answers"]]
    return "".join(parts)


_HARDWARE = ("cores", "memory_gib")
_HOLDS = {True: "yes", False: "**no**", None: "-"}


def _cell(text: str | None) -> str:
    return "" if text is None else text.replace("|", "\\|")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


if __name__ == "__main__":
    sys.exit(main())
