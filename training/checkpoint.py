"""Checkpoints: Megatron's distributed checkpoint of model and optimizer, and the batch cursor beside it.

A step is done when the file `latest` names its checkpoint; before that a restart repeats it, after that never. The
pointer is replaced only when every file is synced. The last two checkpoints are kept. Digests of all files lie beside
them: a damaged checkpoint is an error, never a model that is silently another one.
"""

from __future__ import annotations

import hashlib
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.distributed import checkpoint as torch_checkpoint

from schemas.errors import TrainingError
from schemas.failpoints import hit
from schemas.files import sync_folder, sync_tree, write_durably
from training.megatron import MCoreSavePlanner, TorchDistSaveShardedStrategy, dist_checkpointing, torch_format
from training.trainer import Trainer

KEPT = 2
_LATEST, _CURSOR, _DIGESTS = "latest", "cursor.json", "digests.json"


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """What the last completed step was, in full, so that its events can be written again after a crash."""

    next_step: int
    batch_id: str
    batch_sha256: str
    metrics: dict[str, float]
    wait_s: float
    duration_s: float


class Checkpoints:
    """The checkpoints of one run. `save` and `load` are called by all ranks together."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, next_step: int) -> Path:
        return self.root / f"step-{next_step:06d}"

    def latest(self) -> Cursor | None:
        """Where the run stands; None before its first step."""
        pointer = self.root / _LATEST
        if not pointer.exists():
            return None
        path = self.root / pointer.read_text(encoding="utf-8").strip() / _CURSOR
        try:
            return msgspec.json.decode(path.read_bytes(), type=Cursor)
        except (OSError, msgspec.MsgspecError) as wrong:
            raise TrainingError(f"checkpoint cannot be read ({wrong})", where=str(path)) from None

    def save(self, trainer: Trainer, cursor: Cursor) -> Path:
        """Durable when this returns on rank 0."""
        directory = self.path(cursor.next_step)
        first = torch.distributed.get_rank() == 0
        if first:
            # Left by a crash before the pointer moved.
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
        torch.distributed.barrier()
        with _megatron_ahead_of_torch():
            dist_checkpointing.save(_state(trainer, loading=False), str(directory), sharded_strategy=_InProcessSave())
        if first:
            write_durably(directory / _DIGESTS, msgspec.json.encode(_digests(directory)))
            write_durably(directory / _CURSOR, msgspec.json.encode(cursor))
            sync_tree(directory)
            hit("learner:before_pointer")
            self._point_to(directory)
            self._remove_old()
        return directory

    def load(self, trainer: Trainer, cursor: Cursor) -> None:
        directory = self.path(cursor.next_step)
        _require_undamaged(directory)
        with _megatron_ahead_of_torch():
            state = dist_checkpointing.load(_state(trainer, loading=True), str(directory))
        trainer.model.load_state_dict(state["model"])
        trainer.optimizer.load_state_dict(state["optimizer"])

    def _point_to(self, directory: Path) -> None:
        beside = self.root / f".{_LATEST}.part"
        beside.unlink(missing_ok=True)
        write_durably(beside, directory.name.encode())
        beside.rename(self.root / _LATEST)
        sync_folder(self.root)

    def _remove_old(self) -> None:
        for directory in sorted(self.root.glob("step-*"))[:-KEPT]:
            shutil.rmtree(directory)


def _digests(directory: Path) -> dict[str, str]:
    found = {}
    for path in sorted(directory.iterdir()):
        if path.is_file() and path.name not in (_CURSOR, _DIGESTS):
            with path.open("rb") as file:
                found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def _require_undamaged(directory: Path) -> None:
    try:
        wanted = msgspec.json.decode((directory / _DIGESTS).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError) as wrong:
        raise TrainingError(f"checkpoint cannot be read ({wrong})", where=str(directory)) from None
    found = _digests(directory)
    damaged = sorted(name for name in wanted if found.get(name) != wanted[name])
    if damaged:
        raise TrainingError(
            "checkpoint is damaged: files do not match their digests", where=str(directory), value=damaged,
            hint=f"name the checkpoint before it in `{_LATEST}`: the steps since are taken again, with the same result")


def _state(trainer: Trainer, loading: bool) -> dict[str, Any]:
    model = trainer.model.sharded_state_dict(prefix="")
    return {"model": model, "optimizer": trainer.optimizer.sharded_state_dict(model, is_loading=loading)}


@contextmanager
def _megatron_ahead_of_torch() -> Iterator[None]:
    """Megatron's checkpoint uses parts of torch that torch now announces the end of; these two notices are expected."""
    with warnings.catch_warnings():
        for message in ("`load_state_dict` is deprecated", "Please use DTensor instead"):
            warnings.filterwarnings("ignore", message=message, category=FutureWarning)
        yield


class _InProcessSave(TorchDistSaveShardedStrategy):  # type: ignore[misc]
    """Megatron's format, written by this process: its own writer forks helpers that outlive a killed learner."""

    def __init__(self) -> None:
        super().__init__("torch_dist", 1)

    def save(self, sharded_state_dict: dict[str, Any], checkpoint_dir: str | Path) -> None:
        named, _, _ = torch_format._replace_state_dict_keys_with_sharded_keys(sharded_state_dict, True)
        torch_checkpoint.save(  # type: ignore[attr-defined]
            torch_format.mcore_to_pyt_state_dict(named, False),
            storage_writer=torch_checkpoint.FileSystemWriter(  # type: ignore[attr-defined]
                checkpoint_dir, thread_count=1),
            planner=MCoreSavePlanner(dedup_replicated_tensors=False, flatten_state_dict=False))
