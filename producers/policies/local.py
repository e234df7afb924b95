"""A policy in process: a directory of Llama-family weights, sampled in batches by a thread of its own.

Published versions are offered as directories and read when first asked for. A turn is sampled from one version from
its first token to its last; turns of different versions may run side by side. What is wrong with a turn is a
PolicyError; weights that cannot be read and sampling that broke are UnavailableErrors, no fault of the policy.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from pathlib import Path

import torch

from producers.policies.batch import Batch, Row
from producers.policies.llama import load_llama, read_config
from producers.policies.tokenizer import Tokenizer
from schemas.errors import PolicyError, UnavailableError
from schemas.policy import Generation, TurnRequest

KEPT_VERSIONS = 2
"""Sets of weights kept in memory beside those in use."""


class LocalPolicy:
    """`directory` is version 0 until other weights are offered as version 0."""

    def __init__(self, name: str, directory: Path) -> None:
        torch.set_num_threads(1)
        self.name = name
        self._config = read_config(directory)
        self._tokenizer = Tokenizer(directory / "tokenizer.json")
        self._template = self._tokenizer.template
        self.tokenizer_digest: str | None = self._tokenizer.digest
        self._versions: dict[int, Path] = {0: directory}
        self._batches: dict[int, Batch] = {}
        self._waiting: deque[tuple[int, Row]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"policy {name}", daemon=True)
        self._thread.start()

    def offer(self, version: int, directory: Path) -> None:
        """Weights of a version that were published. Turns without a wish are sampled from the highest one."""
        with self._changed:
            self._versions[version] = directory

    def has(self, version: int) -> bool:
        return version in self._versions

    def encode(self, role: str, text: str) -> list[int]:
        return self._template.observation(role, self._tokenizer.encode(text))

    async def generate(self, request: TurnRequest) -> Generation:
        row, version = self._enqueue(request)
        try:
            await asyncio.wrap_future(row.future)
        except asyncio.CancelledError:
            row.limit = 0
            raise
        ended = row.ids[-1] == self._template.stop
        return Generation(
            ids=row.ids, text=self._tokenizer.decode(row.ids[:-1] if ended else row.ids), logprobs=row.logprobs,
            versions=[(version, len(row.ids))], finish_reason="stop" if ended else "length",
            sampler=request.sampling.distribution)

    def _enqueue(self, request: TurnRequest) -> tuple[Row, int]:
        room = self._config.max_position_embeddings - len(request.context)
        if room < 1:
            raise PolicyError("context is longer than the model can read", where=f"episode {request.episode_id}",
                              value=len(request.context), hint="lower limits.token_budget")
        row = Row(request, room)
        with self._changed:
            version = max(self._versions) if request.version is None else request.version
            if version not in self._versions:
                raise UnavailableError("weights of this version were not published", where=self.name, value=version)
            if self._closed:
                raise UnavailableError("policy is closed", where=self.name)
            self._waiting.append((version, row))
            self._changed.notify()
        return row, version

    async def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        torch.set_num_threads(1)
        while (joining := self._next()) is not None:
            for version, rows in joining.items():
                self._guarded(version, rows)
            for version, batch in list(self._batches.items()):
                if batch.rows:
                    self._guarded(version, None)

    def _next(self) -> dict[int, list[Row]] | None:
        """Turns that wait, by version; waits only while nothing is being sampled. None: the policy was closed."""
        with self._changed:
            while not self._waiting and not self._closed and not any(batch.rows for batch in self._batches.values()):
                self._changed.wait()
            if self._closed:
                self._end_all(UnavailableError("policy is closed", where=self.name))
                return None
            joining: dict[int, list[Row]] = {}
            while self._waiting:
                version, row = self._waiting.popleft()
                joining.setdefault(version, []).append(row)
            return joining

    def _end_all(self, error: Exception) -> None:
        running = [row for batch in self._batches.values() for row in batch.rows]
        for row in [*running, *(row for _, row in self._waiting)]:
            row.future.set_exception(error)
        self._waiting.clear()
        self._batches.clear()

    def _guarded(self, version: int, joining: list[Row] | None) -> None:
        """Join or step the batch of a version. An error ends the turns of this batch and no others."""
        try:
            left = self._batches[version].step() if joining is None else self._batch(version).join(joining)
        except Exception as wrong:
            broken = self._batches.pop(version, None)
            error = UnavailableError(f"the policy cannot sample: {wrong}", where=f"{self.name}, version {version}")
            for row in {*(joining or []), *(broken.rows if broken else [])}:
                row.future.set_exception(error)
            return
        for row in left:
            row.future.set_result(row)

    def _batch(self, version: int) -> Batch:
        """The batch of a version; reads its weights if they are new, and forgets the oldest that are idle."""
        source, batch = self._versions[version], self._batches.get(version)
        if batch is None or (batch.source != source and not batch.rows):
            idle = sorted(other for other, held in self._batches.items() if not held.rows and other != version)
            for old in idle[:-KEPT_VERSIONS]:
                del self._batches[old]
            batch = self._batches[version] = Batch(load_llama(source), self._template.stop, source)
        return batch
