"""What the log says of one run's training: batches sealed, steps completed, weights published. The first ones count."""

from __future__ import annotations

from eventlog.log import EventLog
from schemas.codec import readable_payload
from schemas.events import BatchSealed, Payload, StepCompleted, WeightsPublished
from schemas.topics import TRAINING

_POLL_S = 0.5


class Inbox:
    """Folds the `training` topic from its beginning. Not thread-safe."""

    def __init__(self, log: EventLog, run_id: str) -> None:
        self._run_id = run_id
        self.batches: dict[int, BatchSealed] = {}
        self.steps: dict[int, StepCompleted] = {}
        self.weights: dict[int, WeightsPublished] = {}
        self._reader = log.subscribe([TRAINING])
        self._catch_up(log)

    def batch(self, step: int) -> BatchSealed:
        """Waits until the batch of a step is sealed."""
        while step not in self.batches:
            self._read(_POLL_S)
        return self.batches[step]

    def close(self) -> None:
        self._reader.close()

    def _catch_up(self, log: EventLog) -> None:
        part = (TRAINING, 0)
        end = log.ends([TRAINING])[part]
        while self._reader.position(part) < end:
            self._read(_POLL_S)

    def _read(self, timeout_s: float) -> None:
        for record in self._reader.poll(timeout_s):
            if record.event is not None and record.event.subject == self._run_id:
                self._see(readable_payload(record.event))

    def _see(self, payload: Payload | None) -> None:
        match payload:
            case BatchSealed():
                self.batches.setdefault(payload.step, payload)
            case StepCompleted():
                self.steps.setdefault(payload.step, payload)
            case WeightsPublished():
                self.weights.setdefault(payload.version, payload)
