"""Sealing: the next batch of a run, from one snapshot of the lake to bytes, manifest and `batch.sealed`.

Building is a pure function of snapshot, spec and step. A step is sealed once: its event has a repeatable id, the
first one in the log counts, and step N+1 is built only on a snapshot that holds `batch.sealed` of step N.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from artifacts.store import ArtifactStore
from schemas.codec import make_event, readable_payload
from schemas.enums import Disposition
from schemas.events import ArtifactRef, BatchSealed
from schemas.ids import digest, now_us, stable_id
from schemas.topics import TRAINING
from schemas.transcript import Sequence
from training.advantages import group_advantages
from training.batch_file import MEDIA_TYPE as BATCH_MEDIA_TYPE
from training.batch_file import BatchRow, encode_batch
from training.manifest import (
    MEDIA_TYPE,
    Manifest,
    ManifestDisposition,
    ManifestRow,
    code_digest,
    encode_manifest,
    load_manifest,
)
from training.packing import Place, first_fit, one_a_row
from training.selection import Decision, Member, newest_event_us, read_members, select
from training.sequences import Material, material, trained_flags
from training.spec import BatchSpec

if TYPE_CHECKING:
    from eventlog.log import EventLog
    from lake.lake import Lake

_SEALED = "select step, manifest from batches where run_id = $run order by step desc limit 1"


class Built(NamedTuple):
    manifest: Manifest
    batch: bytes


class Entry(NamedTuple):
    """A member of the batch with what it brings, before packing."""

    member: Member
    material: Material
    advantage: float | None


def seal(run_id: str, spec: BatchSpec, *, lake: Lake, artifacts: ArtifactStore, log: EventLog,
         inspect: Callable[[Built], None] | None = None) -> BatchSealed | None:
    """The batch of the run's next step, sealed now or before; None while the lake does not hold enough for it.

    `inspect` sees a new batch before it is written anywhere; what it raises keeps it out of the log.
    """
    snapshot = lake.snapshot()
    step, before = next_step(run_id, lake, artifacts, snapshot)
    sealed = _sealed_since(run_id, step, log, snapshot)
    if sealed is not None:
        return sealed
    built = build(run_id, step, spec, before, lake=lake, snapshot=snapshot)
    if built is None:
        return None
    if inspect is not None:
        inspect(built)
    artifacts.put(built.batch, BATCH_MEDIA_TYPE)
    manifest = artifacts.put(encode_manifest(built.manifest), MEDIA_TYPE)
    event = make_event(_sealed(built.manifest, manifest), subject=run_id, source=f"headrace/sealer/{run_id}",
                       time_us=now_us(), event_id=sealed_id(run_id, step, manifest.digest))
    log.append(TRAINING, [event]).result()
    # Another sealer may have been first.
    return _sealed_since(run_id, step, log, snapshot)


def sealed_id(run_id: str, step: int, manifest: str) -> str:
    """With the manifest's digest: an event that bears the id already can only say the same."""
    return stable_id("batch.sealed", run_id, step, manifest)


def next_step(run_id: str, lake: Lake, artifacts: ArtifactStore,
              snapshot: Mapping[str, int]) -> tuple[int, Manifest | None]:
    """The step after the last one that the snapshot holds, and the manifest of that last one."""
    last = lake.sql(_SEALED, snapshot, {"run": run_id}).to_pylist()
    if not last:
        return 0, None
    return last[0]["step"] + 1, load_manifest(last[0]["manifest"], artifacts)


def _sealed_since(run_id: str, step: int, log: EventLog, snapshot: Mapping[str, int]) -> BatchSealed | None:
    """The step's first readable `batch.sealed` in the part of the log that the snapshot does not hold."""
    part = (TRAINING, 0)
    end = log.ends([TRAINING])[part]
    reader = log.subscribe([TRAINING], start={part: snapshot.get(f"{TRAINING}-0", 0)})
    try:
        while reader.position(part) < end:
            for record in reader.poll():
                if record.event is None or record.event.subject != run_id:
                    continue
                payload = readable_payload(record.event)
                if isinstance(payload, BatchSealed) and (payload.run_id, payload.step) == (run_id, step):
                    return payload
    finally:
        reader.close()
    return None


def build(run_id: str, step: int, spec: BatchSpec, before: Manifest | None, *, lake: Lake,
          snapshot: Mapping[str, int]) -> Built | None:
    """The batch of a step as a pure function of the snapshot; `before` is the manifest of the step before."""
    from lake.history import transcripts

    abandoned = before.abandoned_groups if before else []
    selection = select(read_members(run_id, lake, snapshot), spec, step, newest_event_us(run_id, lake, snapshot),
                       abandoned)
    if selection is None:
        return None
    taken = [member.episode_id for group in selection.groups for member in group]
    found = transcripts(lake, taken, snapshot)
    materials = {episode_id: material(found.get(episode_id), spec) for episode_id in taken}
    entries, decisions = _judge(selection.groups, materials, spec, step)
    rows = _lay_out(entries, spec, step)
    data = encode_batch(rows)
    decided = sorted([*selection.decisions, *decisions])
    return Built(Manifest(
        batch_id=stable_id("batch", run_id, step), run_id=run_id, step=step, version=step, spec=spec,
        snapshot=dict(sorted(snapshot.items())), code_digest=code_digest(), packing=_packing_name(spec),
        batch=ArtifactRef(digest(data), len(data), BATCH_MEDIA_TYPE), rows=[_manifest_row(row) for row in rows],
        dispositions=[ManifestDisposition(episode_id=decision.episode_id, disposition=decision.disposition.value,
                                          reason=decision.reason) for decision in decided],
        abandoned_groups=[*abandoned, *selection.abandoned]), data)


def _judge(groups: list[list[Member]], materials: Mapping[str, Material], spec: BatchSpec,
           step: int) -> tuple[list[Entry], list[Decision]]:
    """Advantages within each group, and a decision about every member."""
    entries: list[Entry] = []
    decisions: list[Decision] = []
    kept = [[member for member in group if materials[member.episode_id].in_batch] for group in groups]
    rewards = _rewards(kept, spec, step)
    for group, members in zip(groups, kept, strict=True):
        rule = _group_rule([rewards[member.episode_id] for member in members], spec)
        advantages = _advantages([rewards[member.episode_id] for member in members], spec)
        for member in group:
            brought = materials[member.episode_id]
            if brought.disposition == Disposition.TRAINED and rule:
                decisions.append(Decision(member.episode_id, Disposition.FILTERED, rule))
            else:
                decisions.append(Decision(member.episode_id, brought.disposition, brought.reason))
        entries += [Entry(member, materials[member.episode_id], advantage)
                    for member, advantage in zip(members, advantages, strict=True)
                    if not rule or materials[member.episode_id].disposition == Disposition.MASKED]
    return entries, decisions


def _rewards(groups: list[list[Member]], spec: BatchSpec, step: int) -> dict[str, float]:
    members = [member for group in groups for member in group]
    rewards = np.array([member.reward for member in members], dtype=np.float64)
    if spec.shuffle_rewards:
        rewards = rewards[_chance(spec, step, 1).permutation(len(rewards))]
    return {member.episode_id: float(reward) for member, reward in zip(members, rewards, strict=True)}


def _group_rule(rewards: list[float], spec: BatchSpec) -> str:
    """Why a group teaches nothing; empty if it does."""
    if spec.algorithm == "sft":
        return ""
    if len(rewards) < 2:
        return "group_too_small"
    return "equal_rewards" if min(rewards) == max(rewards) else ""


def _advantages(rewards: list[float], spec: BatchSpec) -> list[float] | list[None]:
    if spec.algorithm == "sft" or len(rewards) < 2:
        return [None] * len(rewards)
    return [float(advantage) for advantage in group_advantages(rewards, spec.deviation)]


def _lay_out(entries: list[Entry], spec: BatchSpec, step: int) -> list[BatchRow]:
    """Rows of the file, in order of packed row and position. Masked sequences get rows of their own, at the end."""
    pairs = [(entry, sequence) for entry in entries for sequence in entry.material.sequences]
    trained = [pair for pair in pairs if pair[0].material.disposition == Disposition.TRAINED]
    masked = [pair for pair in pairs if pair[0].material.disposition == Disposition.MASKED]
    rows: list[BatchRow] = []
    first_row = 0
    for minibatch, chosen in enumerate(_minibatches(trained, spec, step)):
        lengths = [len(sequence.ids) for _, sequence in chosen]
        places = one_a_row(len(lengths), first_row) if spec.algorithm == "sft" else first_fit(
            lengths, spec.sequence_length, first_row)
        rows += [_row(entry, sequence, place, minibatch) for (entry, sequence), place in
                 zip(chosen, places, strict=True)]
        first_row = max((place.row + 1 for place in places), default=first_row)
    rows += [_row(entry, sequence, place, 0) for (entry, sequence), place in
             zip(masked, one_a_row(len(masked), first_row), strict=True)]
    return sorted(rows, key=lambda row: (row.sequence, row.position))


def _minibatches(pairs: list[tuple[Entry, Sequence]], spec: BatchSpec,
                 step: int) -> Iterator[list[tuple[Entry, Sequence]]]:
    """GRPO: a random part for each optimizer step. Supervised: one part, the learner draws from it."""
    if spec.algorithm == "sft":
        yield pairs
        return
    order = _chance(spec, step, 0).permutation(len(pairs))
    for part in np.array_split(order, spec.minibatches):
        yield [pairs[index] for index in part]


def _chance(spec: BatchSpec, step: int, purpose: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([spec.seed, step, purpose]))


def _row(entry: Entry, sequence: Sequence, place: Place, minibatch: int) -> BatchRow:
    trained = trained_flags(sequence, entry.material.disposition)
    return BatchRow(
        place.row, place.position, minibatch, entry.member.episode_id, sequence.segment, sequence.ids, trained,
        [logprob if flag else None for logprob, flag in zip(sequence.logprobs, trained, strict=True)],
        sequence.versions, entry.member.reward, entry.advantage)


def _manifest_row(row: BatchRow) -> ManifestRow:
    return ManifestRow(
        episode_id=row.episode_id, segment=row.segment, sequence=row.sequence, position=row.position,
        tokens=len(row.ids), trained_tokens=sum(row.trained), reward=row.reward, advantage=row.advantage)


def _packing_name(spec: BatchSpec) -> str:
    return "one-a-row" if spec.algorithm == "sft" else f"first-fit:{spec.sequence_length}"


def _sealed(manifest: Manifest, ref: ArtifactRef) -> BatchSealed:
    return BatchSealed(
        batch_id=manifest.batch_id, run_id=manifest.run_id, step=manifest.step, version=manifest.version, manifest=ref,
        sha256=manifest.batch.digest, episodes=len({row.episode_id for row in manifest.rows}),
        sequences=len(manifest.rows), tokens=sum(row.tokens for row in manifest.rows), packing=manifest.packing,
        snapshot=manifest.snapshot, at=now_us())
