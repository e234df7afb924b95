"""From an episode's history to training sequences, or the named rule why not.

A masked episode stays in the batch with every token masked and its reward still counts in its group; a filtered one
is out of the batch and out of its group.
"""

from __future__ import annotations

from typing import NamedTuple

from schemas.enums import Disposition
from schemas.errors import SchemaError
from schemas.events import Sampling
from schemas.tokens import unpack_ids
from schemas.transcript import Sequence, Transcript
from training.spec import BatchSpec


class Material(NamedTuple):
    """What an episode brings to a batch. `trained` is False for every token of a masked one."""

    sequences: list[Sequence]
    disposition: Disposition
    reason: str

    @property
    def in_batch(self) -> bool:
        return self.disposition in (Disposition.TRAINED, Disposition.MASKED)


def material(transcript: Transcript | None, spec: BatchSpec) -> Material:
    """Rules in order: no history, no token, tokens sampled after others than recorded, no logprobs, another
    distribution than the learner's, too long."""
    if transcript is None or not any(turn.generated.generated for turn in transcript.turns):
        return Material([], Disposition.FILTERED, "no_tokens")
    try:
        sequences = transcript.sequences()
    except SchemaError:
        return Material(_unchecked(transcript), Disposition.MASKED, "prefix_mismatch")
    if spec.algorithm == "grpo" and any(_lacks_logprobs(sequence) for sequence in sequences):
        return Material([], Disposition.FILTERED, "no_logprobs")
    if spec.algorithm == "grpo" and _sampled_otherwise(transcript, spec):
        return Material([], Disposition.FILTERED, "other_distribution")
    if any(len(sequence.ids) > spec.sequence_length for sequence in sequences):
        return Material(sequences, Disposition.MASKED, "too_long")
    return Material(sequences, Disposition.TRAINED, "")


def trained_flags(sequence: Sequence, disposition: Disposition) -> list[bool]:
    """Which tokens enter the loss. The first token of a sequence is never predicted by anything."""
    if disposition != Disposition.TRAINED:
        return [False] * len(sequence.ids)
    return [generated and index > 0 for index, generated in enumerate(sequence.generated)]


def _lacks_logprobs(sequence: Sequence) -> bool:
    return any(generated and logprob is None
               for generated, logprob in zip(sequence.generated, sequence.logprobs, strict=True))


def _sampled_otherwise(transcript: Transcript, spec: BatchSpec) -> bool:
    """Logprobs of another temperature, or of a truncated distribution, are no denominator for the learner's ratio. A
    sampler that does not tell is trusted."""
    wanted = Sampling(temperature=spec.temperature).distribution
    told = {turn.generated.sampler for turn in transcript.turns}
    return any(sampler.startswith("temperature=") and sampler != wanted for sampler in told)


def _unchecked(transcript: Transcript) -> list[Sequence]:
    """The tokens as recorded: kept in the batch as evidence, never trained on."""
    segments: dict[int, list[int]] = {}
    for turn in transcript.turns:
        ids = segments.setdefault(turn.generated.segment, [])
        ids += unpack_ids(turn.generated.context) + unpack_ids(turn.generated.generated)
    return [Sequence(segment, ids, [False] * len(ids), [None] * len(ids), [-1] * len(ids))
            for segment, ids in sorted(segments.items())]
