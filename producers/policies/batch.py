"""A running batch: turns join and leave between two tokens, so nobody waits for the longest turn.

One batch has one weight version. Rows in use are the first rows of the cache; when a turn ends, a row from the end
takes its place.
"""

from __future__ import annotations

import random
from concurrent.futures import Future
from pathlib import Path

import torch

from producers.policies.llama import Cache, Llama
from producers.policies.sampling import dice, sample
from schemas.policy import TurnRequest


class Row:
    """One turn being generated. `future` gets the sampled ids and logprobs."""

    def __init__(self, request: TurnRequest, room: int) -> None:
        self.request, self.limit = request, min(request.sampling.max_tokens, room)
        self.dice: random.Random = dice(request.sampling, request.task_id, request.sample_index, request.turn)
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.future: Future[Row] = Future()
        self.future.set_running_or_notify_cancel()

    @property
    def position(self) -> int:
        """Where the newest token stands."""
        return len(self.request.context) + len(self.ids) - 1

    def over(self, stop: int) -> bool:
        return self.ids[-1] == stop or len(self.ids) >= self.limit


class Batch:
    """Turns that are sampled together from one set of weights."""

    def __init__(self, model: Llama, stop: int, source: Path) -> None:
        self._model, self._stop, self.source = model, stop, source
        self._cache = Cache(model.config)
        self.rows: list[Row] = []

    @torch.inference_mode()
    def join(self, rows: list[Row]) -> list[Row]:
        """Read the contexts of new turns and sample their first token; returns those that already ended."""
        first = len(self.rows)
        contexts = [row.request.context for row in rows]
        lengths = torch.tensor([len(context) for context in contexts])
        longest = int(lengths.max())
        reach = max(row.position + 1 + row.limit for row in rows)
        self._cache.reserve(first + len(rows), reach, first)
        ids = torch.tensor([context + [0] * (longest - len(context)) for context in contexts])
        logits = self._model.prefill(ids, lengths, self._cache, first)
        self.rows.extend(rows)
        self._sample(rows, logits)
        return self._leave()

    @torch.inference_mode()
    def step(self) -> list[Row]:
        """One more token for every turn; returns those that ended, which leave the batch."""
        positions = [row.position for row in self.rows]
        logits = self._model.step(torch.tensor([row.ids[-1] for row in self.rows]), torch.tensor(positions),
                                  self._cache, max(positions) + 1)
        self._sample(self.rows, logits)
        return self._leave()

    def _sample(self, rows: list[Row], logits: torch.Tensor) -> None:
        tokens, logprobs = sample(logits, [row.request.sampling for row in rows], [row.dice.random() for row in rows])
        for row, token, logprob in zip(rows, tokens, logprobs, strict=True):
            row.ids.append(token)
            row.logprobs.append(logprob)

    def _leave(self) -> list[Row]:
        over = [row.over(self._stop) for row in self.rows]
        left = [row for row, ended in zip(self.rows, over, strict=True) if ended]
        stay = len(self.rows) - len(left)
        holes = [index for index in range(stay) if over[index]]
        movers = [index for index in range(stay, len(self.rows)) if not over[index]]
        if holes:
            reach = max(self.rows[index].position for index in movers) + 1
            self._cache.move(torch.tensor(movers), torch.tensor(holes), reach)
            for hole, mover in zip(holes, movers, strict=True):
                self.rows[hole] = self.rows[mover]
        del self.rows[stay:]
        return left
