"""The Policy protocol: what a producer asks of anything that generates turns."""

from __future__ import annotations

from typing import Protocol

import msgspec

from schemas.events import Sampling


class Observation(msgspec.Struct, frozen=True):
    """What the policy saw: a prompt (`user`) or a tool's result (`tool`)."""

    role: str
    text: str


class TurnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One turn to generate."""

    episode_id: str
    task_id: str
    turn: int
    context: list[int]
    """All ids of the current segment so far, template included: the policy continues exactly these."""
    history: list[Observation]
    """The same as text, for policies that do not read tokens (scripted)."""
    sampling: Sampling
    sample_index: int = 0
    version: int | None = None
    task_digest: str = ""
    """Address of the task's spec, for policies that read the task (scripted)."""


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """One sampled turn. `logprobs` is None only where nothing was sampled."""

    ids: list[int]
    text: str
    logprobs: list[float] | None = None
    versions: list[tuple[int, int]] = []
    finish_reason: str = "stop"
    sampler: str = ""


class Policy(Protocol):
    """Generation is batched across episodes by the policy itself; `generate` may be awaited many times at once.

    Raises PolicyError where the policy failed; never returns a made-up turn.
    """

    name: str
    tokenizer_digest: str | None

    def encode(self, role: str, text: str) -> list[int]:
        """Ids of one observation in the policy's chat template, ending where the policy would go on."""
        ...

    async def generate(self, request: TurnRequest) -> Generation: ...

    async def close(self) -> None: ...
