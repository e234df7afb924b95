"""Harbor tasks for tests, written into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TOML = 'schema_version = "1.4"\n[verifier]\ntimeout_sec = 55.0\n[agent]\ntimeout_sec = 60.0\n'
TEST = """#!/bin/bash
if [ "$(cat /app/answer.txt)" = 42 ]; then echo 1 > /logs/verifier/reward.txt
else echo 0 > /logs/verifier/reward.txt; fi
"""
SOLVE = "#!/bin/bash\necho 42 > /app/answer.txt\n"
INSTRUCTION = "<!-- harbor-canary GUID 123 -->\n\nWrite 42 to /app/answer.txt.\n"


def harbor(folder: Path, *, toml: str = TOML, instruction: str = INSTRUCTION, test: str = TEST, solve: str = SOLVE,
           **more: Any) -> Path:
    """`more`: further files, with `__` for a slash and `_DOT_` for a dot in their names."""
    files = {"task.toml": toml, "instruction.md": instruction, "tests/test.sh": test, "solution/solve.sh": solve,
             "environment/Dockerfile": "FROM ubuntu:24.04\nWORKDIR /app\n"}
    files |= {name.replace("__", "/").replace("_DOT_", "."): text for name, text in more.items()}
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
