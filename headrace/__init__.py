"""The front door: `headrace.open(home).sql("select ...")`, the command line, the service runner and the demo."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.reader import Reader

__all__ = ["open"]
__version__ = "0.1.0"


def open(home: str | None = None) -> Reader:
    """A reader of one home. Raises UserError where there is no lake yet."""
    from headrace.reader import open_reader

    return open_reader(home)
