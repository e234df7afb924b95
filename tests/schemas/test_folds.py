"""The two folds: they admit the same events, agree on where an episode stands, and can be restored anywhere."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.admission import UNCLAIMED
from schemas.codec import make_event
from schemas.envelope import Event
from schemas.errors import SchemaError
from schemas.events import Payload, ToolCalled, TurnGenerated
from schemas.head import EpisodeHead, Heads
from schemas.tokens import PrefixDigest, pack_ids, pack_logprobs
from schemas.transcript import Transcript, transcript_of
from tests.schemas.streams import EPISODES, PAYLOADS, build, definition, logs


def heads_admit(heads: Heads, events: Sequence[Event]) -> list[Event]:
    """What a reader of heads admits. A payload at fault still took its place: the error comes after admission."""
    admitted = []
    for event in events:
        try:
            seen = heads.see(event)
        except SchemaError:
            admitted.append(event)
            continue
        if seen.admitted:
            admitted.append(event)
    return admitted


def transcripts_admit(transcripts: dict[str, Transcript], events: Sequence[Event]) -> list[Event]:
    admitted = []
    for event in events:
        transcript = transcripts.setdefault(event.subject, Transcript(event.subject))
        try:
            seen = transcript.see(event)
        except SchemaError:
            seen = True
        if seen:
            admitted.append(event)
    return admitted


@given(logs())
def test_heads_and_transcripts_admit_what_admission_says(log: list[Event]) -> None:
    assert heads_admit(Heads(), log) == transcripts_admit({}, log) == definition(log)


@given(logs())
def test_the_folds_agree_on_where_an_episode_stands(log: list[Event]) -> None:
    heads, transcripts = Heads(), {episode: Transcript(episode) for episode in EPISODES}
    last: dict[str, EpisodeHead] = {}
    for event in log:
        head = _head_after(heads, event)
        if head is not None:
            last[event.subject] = head
        transcripts_admit(transcripts, [event])
    for episode, head in last.items():
        transcript = transcripts[episode]
        assert (head.claim, head.attempt) == (transcript.claim, transcript.attempt)
        assert (head.started, head.finished) == (transcript.started, transcript.finished)
        assert head.turn == (transcript.turns[-1].generated.turn if transcript.turns else -1)
        assert (episode in heads.closed) == transcript.claim.finished
        assert (episode in heads.open) == (not transcript.claim.finished and transcript.claim != UNCLAIMED)


def _head_after(heads: Heads, event: Event) -> EpisodeHead | None:
    before = heads.open.get(event.subject)
    try:
        seen = heads.see(event)
    except SchemaError:
        return heads.open.get(event.subject, before)
    return seen.head if seen.admitted else None


@given(logs(), st.integers(0, 40))
def test_heads_restored_midway_go_on_the_same(log: list[Event], cut: int) -> None:
    """As after a restart: open heads are folded again from the history of their episodes, closed ones are a set."""
    unbroken = Heads()
    heads_admit(unbroken, log[:cut])
    restored = Heads()
    restored.closed = copy.deepcopy(unbroken.closed)
    heads_admit(restored, [event for event in log[:cut] if event.subject in unbroken.open])
    assert restored.open == unbroken.open
    assert heads_admit(restored, log[cut:]) == heads_admit(unbroken, log[cut:])
    assert (restored.open, restored.closed) == (unbroken.open, unbroken.closed)


@given(logs(), st.integers(0, 40))
def test_a_transcript_copied_midway_goes_on_the_same(log: list[Event], cut: int) -> None:
    transcripts: dict[str, Transcript] = {}
    transcripts_admit(transcripts, log[:cut])
    copied = copy.deepcopy(transcripts)
    assert transcripts_admit(copied, log[cut:]) == transcripts_admit(transcripts, log[cut:])
    assert copied == transcripts


@given(logs())
def test_a_transcript_counts_what_it_fenced(log: list[Event]) -> None:
    transcripts: dict[str, Transcript] = {}
    admitted = transcripts_admit(transcripts, log)
    assert sum(transcript.fenced for transcript in transcripts.values()) == len(log) - len(admitted)


@given(logs())
def test_heads_keep_nothing_of_a_closed_episode(log: list[Event]) -> None:
    heads = Heads()
    heads_admit(heads, log)
    assert not any(episode in heads.closed for episode in heads.open)


def _episode(*payloads: Payload) -> list[Event]:
    return [make_event(payload, subject="episode", source="writer", time_us=0, sequence=index)
            for index, payload in enumerate(payloads)]


def _turn(turn: int, context: list[int], generated: list[int], before: Sequence[int] = (), *, segment: int = 0,
          version: int = 0, sampled: bool = True) -> TurnGenerated:
    prefix = PrefixDigest()
    prefix.add(pack_ids([*before, *context]))
    return TurnGenerated(
        turn=turn, segment=segment, context=pack_ids(context), generated=pack_ids(generated),
        logprobs=pack_logprobs([-0.5] * len(generated)) if sampled else None,
        versions=[(version, len(generated))] if sampled else [], prefix=prefix.value(), started_at=0, finished_at=1)


def test_a_return_closes_its_call() -> None:
    heads = Heads()
    called, returned = PAYLOADS["called"], PAYLOADS["returned"]
    events = _episode(PAYLOADS["started"], _turn(0, [1], [2]), called, returned)
    *_, before, after = [heads.see(event) for event in events]
    assert before.open_call is None
    assert after.open_call == called
    assert heads.open["episode"].open_calls == {}
    transcript = transcript_of("episode", events)
    assert [(call.called, call.returned) for call in transcript.turns[0].calls] == [(called, returned)]
    assert transcript.workspace == heads.open["episode"].workspace == "sha256:" + "0" * 64


def test_a_restart_drops_earlier_turns_and_a_resume_keeps_them() -> None:
    start = [PAYLOADS["started"], _turn(0, [1], [2], version=3), PAYLOADS["called"]]
    for again, turns, attempt, versions in (("resumed", 1, 1, (3, 3)), ("restarted", 0, 2, (None, None))):
        events = _episode(*start, PAYLOADS[again])
        transcript, heads = transcript_of("episode", events), Heads()
        heads_admit(heads, events)
        head = heads.open["episode"]
        assert (len(transcript.turns), transcript.attempt, head.attempt) == (turns, attempt, attempt)
        assert (head.version_min, head.version_max) == versions
        assert bool(head.open_calls) == bool(turns)


def test_a_call_before_any_turn_is_a_schema_error() -> None:
    for kind in ("called", "returned"):
        transcript = Transcript("episode")
        started, call = _episode(PAYLOADS["started"], PAYLOADS[kind])
        transcript.see(started)
        with pytest.raises(SchemaError, match="tool call before any turn at episode episode: 'call'"):
            transcript.see(call)


def test_a_bad_payload_still_takes_its_place() -> None:
    events = [build("started", "episode", "a", 0, "1"), build("corrupt", "episode", "a", 1, "2"),
              build("finished", "episode", "a", 2, "3")]
    heads, transcript = Heads(), Transcript("episode")
    heads.see(events[0])
    transcript.see(events[0])
    for fold in (heads.see, transcript.see):
        with pytest.raises(SchemaError, match=r"\$\.turn.* at event 2"):
            fold(events[1])
    assert heads.see(events[2]).admitted and transcript.see(events[2])


def test_a_bad_payload_hides_nothing_else_and_is_never_trained_on() -> None:
    good = _turn(0, [1, 2], [3, 4])
    events = _episode(PAYLOADS["started"], good, good, PAYLOADS["finished"])
    events[2] = events[2]._replace(data=b"junk")
    transcript = transcript_of("episode", events)
    assert ([turn.generated for turn in transcript.turns], transcript.finished) == ([good], PAYLOADS["finished"])
    (violation,) = transcript.violations
    assert events[2].id in violation
    with pytest.raises(SchemaError, match=events[2].id):
        transcript.sequences()


def test_a_segment_is_one_training_sequence() -> None:
    first = _turn(0, [1, 2], [3, 4], version=7)
    second = _turn(1, [5], [6], before=[1, 2, 3, 4], version=8)
    other = _turn(2, [9], [10], segment=1, sampled=False)
    one, two = transcript_of("episode", _episode(PAYLOADS["started"], first, second, other)).sequences()
    assert (one.segment, one.ids) == (0, [1, 2, 3, 4, 5, 6])
    assert one.generated == [False, False, True, True, False, True]
    assert one.logprobs == [None, None, -0.5, -0.5, None, -0.5]
    assert one.versions == [-1, -1, 7, 7, -1, 8]
    assert (two.segment, two.ids, two.logprobs, two.versions) == (1, [9, 10], [None, None], [-1, -1])


def test_a_turn_sampled_after_other_tokens_is_refused() -> None:
    wrong = _turn(1, [5], [6], before=[1, 2, 3, 5])
    transcript = transcript_of("episode", _episode(PAYLOADS["started"], _turn(0, [1, 2], [3, 4]), wrong))
    with pytest.raises(SchemaError, match=r"causal-prefix digest does not match.*episode episode, turn 1"):
        transcript.sequences()


def test_a_head_stays_small_however_long_the_episode() -> None:
    """Constant size: what a head holds after many turns is what it holds after one."""
    heads = Heads()
    turns = [_turn(turn, [turn], [turn]) for turn in range(200)]
    calls: list[Payload] = []
    for turn in turns:
        call = ToolCalled(turn=turn.turn, call_id=f"call-{turn.turn}", tool="calc", arguments="", at=0)
        calls += [turn, call, PAYLOADS["returned"].__class__(turn=turn.turn, call_id=call.call_id, status="ok", at=1)]
    heads_admit(heads, _episode(PAYLOADS["started"], *calls))
    head = heads.open["episode"]
    assert (head.turn, head.open_calls, head.claim.sequence) == (199, {}, 600)
