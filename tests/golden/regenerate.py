"""Write golden bytes that are not there yet: `python -m tests.golden.regenerate`.

An existing file is never overwritten: it stands for events in logs that cannot be changed. A payload that no longer
gives these bytes is a breaking change and needs a new version with an upcaster.
"""

from __future__ import annotations

import sys
from pathlib import Path

from schemas.codec import make_event
from schemas.events import Payload
from tests.golden.examples import V1

FOLDER = Path(__file__).parent


def path_of(payload: Payload, folder: Path = FOLDER) -> Path:
    return folder / f"{payload.NAME}.v{payload.VERSION}.msgpack"


def write_missing(folder: Path) -> list[Path]:
    """The files that were written."""
    written = []
    for payload in V1:
        path = path_of(payload, folder)
        if not path.exists():
            with path.open("xb") as file:
                file.write(make_event(payload, subject="", source="", time_us=0).data)
            written.append(path)
    return written


if __name__ == "__main__":
    made = "".join(f"wrote {path.name}\n" for path in write_missing(FOLDER))
    sys.stdout.write(made or "nothing to write: every golden file is there\n")
