"""Transcript: the second fold, the whole of one episode, built on demand (resume, viewer, training)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from schemas.admission import Claim, admit
from schemas.codec import decode_payload
from schemas.envelope import Event
from schemas.errors import SchemaError
from schemas.events import (
    ContextCompacted,
    EpisodeFinished,
    EpisodeResumed,
    EpisodeStarted,
    Payload,
    ToolCalled,
    ToolReturned,
    TurnGenerated,
)
from schemas.tokens import PrefixDigest, unpack_ids, unpack_logprobs


class Call(msgspec.Struct):
    called: ToolCalled
    returned: ToolReturned | None = None


class Turn(msgspec.Struct):
    generated: TurnGenerated
    calls: list[Call] = []


class Sequence(msgspec.Struct, frozen=True):
    """One training sequence: all tokens of a segment, in order. All lists have the same length."""

    segment: int
    ids: list[int]
    generated: list[bool]
    """True where the policy sampled the token."""
    logprobs: list[float | None]
    """Behaviour logprob of a generated token; None elsewhere and for turns that were not sampled."""
    versions: list[int]
    """Weight version that sampled the token; -1 elsewhere."""


class Transcript(msgspec.Struct):
    """Turns of the last attempt, with all their calls. `claim` says who may write next."""

    episode_id: str
    claim: Claim = Claim()
    started: EpisodeStarted | None = None
    attempt: int = 1
    turns: list[Turn] = []
    compactions: list[ContextCompacted] = []
    resumes: list[EpisodeResumed] = []
    finished: EpisodeFinished | None = None
    workspace: str | None = None
    fenced: int = 0
    violations: list[str] = []
    """Admitted events whose payload could not be folded: shown, but nothing of this episode is trained on."""

    def see(self, event: Event) -> bool:
        """Admit and fold one event of this episode; False if it was fenced.

        Raises SchemaError after the claim has advanced, like `Heads.see`.
        """
        verdict = admit(self.claim, event)
        if not verdict.admitted:
            self.fenced += 1
            return False
        self.claim = verdict.claim
        payload = decode_payload(event)
        if payload is not None:
            self.apply(payload)
        return True

    def apply(self, payload: Payload) -> None:
        match payload:
            case EpisodeStarted():
                self.started, self.attempt = payload, payload.attempt
            case EpisodeResumed():
                self.attempt = payload.attempt
                self.resumes.append(payload)
                if payload.restart:
                    self.turns, self.compactions, self.workspace = [], [], None
            case TurnGenerated():
                self.turns.append(Turn(payload))
            case ToolCalled():
                self._last_turn(payload).calls.append(Call(payload))
            case ToolReturned():
                self._close(payload)
            case ContextCompacted():
                self.compactions.append(payload)
            case EpisodeFinished():
                self.finished = payload

    def _last_turn(self, call: ToolCalled | ToolReturned) -> Turn:
        if not self.turns:
            raise SchemaError("tool call before any turn", where=f"episode {self.episode_id}", value=call.call_id)
        return self.turns[-1]

    def _close(self, returned: ToolReturned) -> None:
        for call in reversed(self._last_turn(returned).calls):
            if call.called.call_id == returned.call_id and call.called.attempt == returned.attempt:
                call.returned = returned
                break
        self.workspace = returned.workspace or self.workspace

    def sequences(self) -> list[Sequence]:
        """One per segment, checked: raises SchemaError where a turn's causal-prefix digest does not match, or where
        an event could not be folded."""
        if self.violations:
            raise SchemaError(self.violations[0])
        segments: dict[int, list[TurnGenerated]] = {}
        for turn in self.turns:
            segments.setdefault(turn.generated.segment, []).append(turn.generated)
        return [_sequence(self.episode_id, segment, turns) for segment, turns in sorted(segments.items())]


def _sequence(episode_id: str, segment: int, turns: list[TurnGenerated]) -> Sequence:
    result = Sequence(segment, [], [], [], [])
    prefix = PrefixDigest()
    for turn in turns:
        prefix.add(turn.context)
        if turn.prefix and turn.prefix != prefix.value():
            raise SchemaError("causal-prefix digest does not match: the turn was sampled after other tokens",
                              where=f"episode {episode_id}, turn {turn.turn}", value=turn.prefix)
        prefix.add(turn.generated)
        context, generated = unpack_ids(turn.context), unpack_ids(turn.generated)
        logprobs: list[float | None] = [None] * len(generated)
        if turn.logprobs is not None:
            logprobs = [*unpack_logprobs(turn.logprobs)]
        versions = [version for version, count in turn.versions for _ in range(count)] or [-1] * len(generated)
        result.ids.extend(context + generated)
        result.generated.extend([False] * len(context) + [True] * len(generated))
        result.logprobs.extend([None] * len(context))
        result.logprobs.extend(logprobs)
        result.versions.extend([-1] * len(context) + versions)
    return result


def transcript_of(episode_id: str, events: Iterable[Event]) -> Transcript:
    """All that can be folded of an episode. One bad payload takes nothing else away: see `violations`."""
    transcript = Transcript(episode_id)
    for event in events:
        try:
            transcript.see(event)
        except SchemaError as wrong:
            transcript.violations.append(str(wrong))
    return transcript
