"""The pictures are real PNG files, light enough for Dagster's event log."""

from __future__ import annotations

import base64
import struct
import zlib

import pytest

from pipelines.picture import BIN, HEIGHT, bars_png, histogram, markdown_image


def decode(png: bytes) -> list[bytes]:
    """Rows of palette indices, read by the format's own rules."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    at, chunks = 8, {}
    while at < len(png):
        (size,) = struct.unpack(">I", png[at:at + 4])
        kind, data = png[at + 4:at + 8], png[at + 8:at + 8 + size]
        assert struct.unpack(">I", png[at + 8 + size:at + 12 + size]) == (zlib.crc32(kind + data),)
        chunks[kind] = data
        at += 12 + size
    width, height, depth, colour = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (height, depth, colour, list(chunks)) == (HEIGHT, 8, 3, [b"IHDR", b"PLTE", b"IDAT", b"IEND"])
    pixels = zlib.decompress(chunks[b"IDAT"])
    assert len(pixels) == height * (width + 1)
    assert max(pixels) < len(chunks[b"PLTE"]) // 3
    return [pixels[row * (width + 1) + 1:(row + 1) * (width + 1)] for row in range(height)]


def test_values_fall_into_their_bins() -> None:
    assert histogram([0.0, 0.05, 0.1, 0.999, 1.0, 1.0], bins=10) == [2, 1, 0, 0, 0, 0, 0, 0, 0, 3]
    assert histogram([], bins=3) == [0, 0, 0]
    assert sum(histogram([-1.0, 2.0])) == 2


def test_bars_are_as_high_as_they_say() -> None:
    rows = decode(bars_png([0, 1, 2]))
    heights = [sum(row[index * BIN] == 2 for row in rows) for index in range(3)]
    assert heights == [0, (HEIGHT - 2) // 2, HEIGHT - 2]
    assert set(rows[-1]) == {1}


@pytest.mark.parametrize("heights", [[], [0], [0.0] * 20, [1e-9]])
def test_nothing_to_draw_is_still_a_picture(heights: list[float]) -> None:
    assert len(decode(bars_png(heights))) == HEIGHT


def test_a_picture_of_many_bars_is_light() -> None:
    image = markdown_image(bars_png([index % 7 for index in range(200)]), "rewards")
    assert image.startswith("![rewards](data:image/png;base64,")
    assert len(image) < 10_000
    decode(base64.b64decode(image.removesuffix(")").rpartition(",")[2]))
