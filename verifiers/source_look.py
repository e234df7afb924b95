"""Runs inside the sandbox before the submission does: whether a Python source compiles, and what is wrong with it."""

from __future__ import annotations

import sys

from verifiers import candidate_runner, values


def main(path: str) -> None:
    with open(path, "rb") as file:
        sys.stdout.write(values.text_of(candidate_runner.look_at(file.read(candidate_runner.SOURCE_LIMIT))))
