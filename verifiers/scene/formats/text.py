"""Lines of text files, one at a time: a long file never becomes a long list."""

from __future__ import annotations

from collections.abc import Iterator

from verifiers.scene.mesh import MeshError


def rows(data: bytes, start: int = 0) -> Iterator[list[bytes]]:
    """Words of every line that has some; what follows `#` is a comment."""
    at, end = start, len(data)
    while at < end:
        stop = data.find(b"\n", at)
        stop = end if stop < 0 else stop
        line = data[at:stop]
        at = stop + 1
        if b"\r" in line[:-1]:
            for part in line.split(b"\r"):
                if words := part.partition(b"#")[0].split():
                    yield words
        elif words := line.partition(b"#")[0].split():
            yield words


def whole(word: bytes) -> int:
    """An integer as files write it: digits and a sign alone."""
    try:
        if b"_" in word:
            raise ValueError
        return int(word)
    except ValueError:
        raise MeshError(f"not a whole number: {word[:40].decode(errors='replace')}") from None
