"""The learner of one run: batches in the order of their steps, each to a checkpoint, to weights, to events.

    torchrun ... -m training.learner --home H --run RUN_ID --base DIR     (see training/launch.py)

The order makes a step happen exactly once. The checkpoint holds the batch cursor, so what was trained is never
trained again; export and events repeat what the checkpoint says, so after a crash they are simply done again, with
the same bytes and the same ids. torch and Megatron are loaded after version 0 is published: rollouts need not wait.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from artifacts import open_store
from eventlog import open_log
from schemas.codec import make_event
from schemas.errors import HeadraceError, TrainingError
from schemas.events import BatchSealed, Payload, StepCompleted, WeightsPublished
from schemas.failpoints import hit
from schemas.ids import new_id, now_us, stable_id
from schemas.settings import Settings, resolve
from schemas.topics import TRAINING
from training.batch_file import decode_batch
from training.inbox import Inbox
from training.launch import die_with_launcher
from training.manifest import load_manifest
from training.publish import copy_weights, weights_digest

if TYPE_CHECKING:
    import torch

    from training.checkpoint import Cursor


class Publisher:
    """Rank 0's side of the log: what was said before, and what is said once more if it was not."""

    def __init__(self, settings: Settings, run_id: str) -> None:
        self._log = open_log(settings)
        self._run_id, self._source = run_id, f"learner/{new_id()}"
        self.inbox = Inbox(self._log, run_id)

    def weights(self, version: int, digest: str, path: str) -> None:
        if version not in self.inbox.weights:
            self._append(WeightsPublished(
                run_id=self._run_id, version=version, digest=digest, path=path, at=now_us(),
                step=version - 1 if version else None), stable_id("weights.published", self._run_id, version))

    def step(self, cursor: Cursor, duration_s: float, checkpoint: str) -> None:
        step = cursor.next_step - 1
        if step not in self.inbox.steps:
            self._append(StepCompleted(
                run_id=self._run_id, step=step, batch_id=cursor.batch_id, metrics=cursor.metrics, wait_s=cursor.wait_s,
                duration_s=duration_s, checkpoint=checkpoint, at=now_us()),
                stable_id("step.completed", self._run_id, step))

    def _append(self, payload: Payload, event_id: str) -> None:
        event = make_event(payload, subject=self._run_id, source=self._source, time_us=now_us(), event_id=event_id)
        self._log.append(TRAINING, [event]).result()

    def close(self) -> None:
        self.inbox.close()
        self._log.close()


class Learner:
    """One rank. Everything that leaves the process is done by rank 0, which alone has a publisher."""

    def __init__(self, settings: Settings, run_id: str, base: Path, publisher: Publisher | None,
                 device: torch.device) -> None:
        from training.checkpoint import Checkpoints
        from training.trainer import Trainer

        self._home, self._run_id = Path(settings.home), run_id
        self._artifacts = open_store(settings)
        self._publisher = publisher
        self._checkpoints = Checkpoints(self._home / "checkpoints" / run_id)
        self._trainer = Trainer(base, device)

    def run(self, steps: int | None) -> None:
        step = self._resume()
        while steps is None or step < steps:
            started = time.monotonic()
            sealed = self._receive(step)
            self._learn(sealed, wait_s=time.monotonic() - started)
            step += 1

    def _resume(self) -> int:
        """Back to the last durable step, whose consequences are made sure of; the next step."""
        cursor = self._checkpoints.latest()
        if cursor is None:
            return 0
        self._checkpoints.load(self._trainer, cursor)
        self._publish(cursor)
        return cursor.next_step

    def _receive(self, step: int) -> BatchSealed:
        """Rank 0 waits for the batch and tells the others."""
        import torch

        told: list[BatchSealed | None] = [self._publisher.inbox.batch(step) if self._publisher else None]
        torch.distributed.broadcast_object_list(told, src=0)
        assert told[0] is not None
        return told[0]

    def _learn(self, sealed: BatchSealed, wait_s: float) -> None:
        from training.checkpoint import Cursor

        started = time.monotonic()
        manifest = load_manifest(sealed.manifest.digest, self._artifacts)
        if manifest.batch.digest != sealed.sha256:
            raise TrainingError("the manifest names another batch than the log", where=f"batch {sealed.batch_id}",
                                value=manifest.batch.digest)
        sequences = decode_batch(self._artifacts.get(sealed.sha256))
        metrics = self._trainer.train(sequences, manifest.spec, sealed.step, manifest.version)
        hit("learner:after_train")
        cursor = Cursor(next_step=sealed.step + 1, batch_id=sealed.batch_id, batch_sha256=sealed.sha256,
                        metrics=metrics, wait_s=wait_s, duration_s=time.monotonic() - started)
        self._checkpoints.save(self._trainer, cursor)
        hit("learner:after_checkpoint")
        self._publish(cursor, started)

    def _publish(self, cursor: Cursor, started: float | None = None) -> None:
        """What follows from a durable step; after a crash once more, with the duration that the checkpoint knows."""
        if self._publisher is None:
            return
        version = cursor.next_step
        weights, checkpoint = weights_path(self._run_id, version), self._checkpoints.path(version)
        digest = self._trainer.export(self._home / weights)
        hit("learner:after_export")
        duration_s = cursor.duration_s if started is None else time.monotonic() - started
        self._publisher.step(cursor, duration_s, str(checkpoint.relative_to(self._home)))
        hit("learner:between_events")
        self._publisher.weights(version, digest, weights)
        hit("learner:after_step")


def weights_path(run_id: str, version: int) -> str:
    """Below the home."""
    return f"weights/{run_id}/{version}"


def main(arguments: Sequence[str] | None = None) -> int:
    die_with_launcher()
    options = _options(arguments)
    try:
        _learn(_settings(options), options.run_id, options.base, options.steps)
    except HeadraceError as wrong:
        print(wrong.paragraph(), file=sys.stderr, flush=True)
        return wrong.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="training.learner", description="The Megatron-Core learner of one run.")
    parser.add_argument("--home", required=True)
    parser.add_argument("--log")
    parser.add_argument("--log-partitions", type=int)
    parser.add_argument("--artifacts")
    parser.add_argument("--run", dest="run_id", required=True)
    parser.add_argument("--base", type=Path, required=True, help="HF directory of version 0")
    parser.add_argument("--steps", type=int, help="end after this many steps of the run")
    return parser.parse_args(arguments)


def _settings(options: argparse.Namespace) -> Settings:
    flags = {key: getattr(options, key) for key in ("home", "log", "log_partitions", "artifacts")}
    return resolve(flags).settings


def _learn(settings: Settings, run_id: str, base: Path, steps: int | None) -> None:
    publisher = Publisher(settings, run_id) if int(os.environ.get("RANK", "0")) == 0 else None
    try:
        if publisher:
            publish_base(publisher, base, Path(settings.home), run_id)
        import torch

        from training.cpu import cuda_on_cpu
        from training.megatron import process_groups

        torch.set_num_threads(1)
        with cuda_on_cpu() as device, process_groups():
            Learner(settings, run_id, base, publisher, device).run(steps)
    finally:
        if publisher:
            publisher.close()


def publish_base(publisher: Publisher, base: Path, home: Path, run_id: str) -> None:
    """Version 0. A run that has one is trained from those very weights, or not at all."""
    known, path = publisher.inbox.weights.get(0), weights_path(run_id, 0)
    if known is None:
        publisher.weights(0, copy_weights(base, home / path), path)
    elif weights_digest(base) != known.digest:
        raise TrainingError("the run began from another base", where=str(base), value=f"version 0 is {known.digest}",
                            hint=f"give --base {home / path}, or start a new run")


if __name__ == "__main__":
    sys.exit(main())
