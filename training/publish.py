"""Weights directories: whole or absent, known by a digest. No torch, so version 0 is out before torch is loaded.

A directory is written beside, synced and renamed. Its digest covers the name and the bytes of every file in it.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from schemas.errors import TrainingError
from schemas.files import sync_folder, write_durably
from schemas.ids import DIGEST_PREFIX, new_id

WEIGHTS_FILE = "model.safetensors"


def copy_weights(base: Path, directory: Path) -> str:
    """Version 0: the base as it is. The digest."""
    path = base / WEIGHTS_FILE
    try:
        weights = path.read_bytes()
    except OSError as wrong:
        raise TrainingError(f"weights of the base cannot be read ({wrong.strerror})", where=str(path)) from None
    return write_weights(directory, base, weights)


def write_weights(directory: Path, base: Path, weights: bytes) -> str:
    """`weights` with the base's other files beside them. One that is there already must hold the same bytes."""
    beside = directory.parent / f".{directory.name}.{new_id()}.part"
    try:
        beside.mkdir(parents=True)
        write_durably(beside / WEIGHTS_FILE, weights)
        for path in sorted(base.iterdir()):
            if path.is_file() and path.name != WEIGHTS_FILE:
                write_durably(beside / path.name, path.read_bytes())
        written = weights_digest(beside)
        if directory.exists():
            _check_same(directory, written)
        else:
            sync_folder(beside)
            beside.rename(directory)
            sync_folder(directory.parent)
    except OSError as wrong:
        raise TrainingError(f"weights cannot be written ({wrong.strerror})", where=str(directory)) from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return written


def weights_digest(directory: Path) -> str:
    """Over the name and the content of every file, in order of names."""
    whole = hashlib.sha256()
    for path in sorted(path for path in directory.iterdir() if path.is_file()):
        whole.update(f"{path.name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return DIGEST_PREFIX + whole.hexdigest()


def _check_same(directory: Path, written: str) -> None:
    found = weights_digest(directory)
    if found != written:
        raise TrainingError(f"other weights stand where version {directory.name} belongs (digest {found}, not "
                            f"{written})", where=str(directory),
                            hint="a run keeps its base and its batches; start a new run for another base")
