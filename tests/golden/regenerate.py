"""Write golden bytes and schemas that are not there yet: `python -m tests.golden.regenerate`.

What exists is never changed: it stands for events in logs that cannot be changed. A payload that no longer gives these
bytes, or fields that differ from those in schemas.json by more than new ones at their end, are a breaking change and
need a new version with an upcaster (docs/schema-evolution.md).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec

from schemas.events import PAYLOADS, Payload
from schemas.superseded import SUPERSEDED
from tests.golden.examples import ALL
from tests.golden.shapes import Shapes, breaks, shapes_of

FOLDER = Path(__file__).parent


def path_of(payload: Payload, folder: Path = FOLDER) -> Path:
    return folder / f"{payload.NAME}.v{payload.VERSION}.msgpack"


def write_missing(folder: Path) -> list[Path]:
    """The files of bytes that were written."""
    written = []
    for payload in ALL:
        path = path_of(payload, folder)
        if not path.exists():
            with path.open("xb") as file:
                file.write(msgspec.msgpack.encode(payload))
            written.append(path)
    return written


def kept_shapes(folder: Path = FOLDER) -> Shapes:
    path = folder / "schemas.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def add_shapes(folder: Path) -> list[str]:
    """What breaks the kept schemas; if nothing does, new types and fields are added to them."""
    old, new = kept_shapes(folder), shapes_of((*PAYLOADS, *SUPERSEDED))
    broken = breaks(old, new)
    if not broken:
        text = json.dumps(new, indent=1, sort_keys=True)
        (folder / "schemas.json").write_text(text + "\n", encoding="utf-8")
    return broken


if __name__ == "__main__":
    made = "".join(f"wrote {path.name}\n" for path in write_missing(FOLDER))
    broken = add_shapes(FOLDER)
    sys.stdout.write(made + "".join(f"refused: {line}\n" for line in broken) or "every golden file is there\n")
    sys.exit(1 if broken else 0)
