"""A bar chart as a small PNG, without a drawing library: Dagster keeps it in its event log, so it must be light."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

BIN = 10
"""Width of a bar in pixels, one of them empty."""
HEIGHT = 64
_PALETTE = bytes([255, 255, 255, 200, 204, 212, 47, 111, 171])
_PAPER, _LINE, _BAR = 0, 1, 2


def histogram(values: Sequence[float], bins: int = 20, low: float = 0.0, high: float = 1.0) -> list[int]:
    """How many values fall into each of equal bins; the last bin takes `high` too."""
    counts = [0] * bins
    for value in values:
        place = int((value - low) / (high - low) * bins)
        counts[min(max(place, 0), bins - 1)] += 1
    return counts


def bars_png(heights: Sequence[float]) -> bytes:
    """One bar for each height, the tallest as high as the picture. No height gives an empty frame."""
    tallest = max(heights, default=0) or 1
    pixels = [round(max(height, 0) / tallest * (HEIGHT - 2)) for height in heights]
    rows = [_row(HEIGHT - 1 - y, pixels) for y in range(HEIGHT)]
    return _png(max(len(heights), 1) * BIN, rows)


def _row(level: int, pixels: Sequence[int]) -> bytes:
    if level == 0:
        return bytes([_LINE]) * (max(len(pixels), 1) * BIN)
    filled = [_BAR if height >= level else _PAPER for height in pixels] or [_PAPER]
    return b"".join(bytes([colour]) * (BIN - 1) + bytes([_PAPER]) for colour in filled)


def _png(width: int, rows: Sequence[bytes]) -> bytes:
    """PNG with a palette, eight bits a pixel, no filter (W3C PNG, sections 5 and 11)."""
    header = struct.pack(">IIBBBBB", width, len(rows), 8, 3, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    chunks = ((b"IHDR", header), (b"PLTE", _PALETTE), (b"IDAT", body), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def markdown_image(png: bytes, text: str) -> str:
    return f"![{text}](data:image/png;base64,{base64.b64encode(png).decode()})"
