"""Admission: any interleaving of owners, zombies and duplicates gives every reader the same admitted stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from schemas.admission import UNCLAIMED, Claim, Verdict, admit, is_claim
from schemas.envelope import Event
from tests.schemas.streams import CLAIM_TYPES, EPISODES, FINISH_TYPES, build, definition, logs

Admit = Callable[[Claim, Event], Verdict]


def read(log: Sequence[Event], claims: dict[str, Claim], rule: Admit = admit) -> list[Event]:
    """What one reader admits of `log`; `claims` is what it remembers."""
    admitted = []
    for event in log:
        verdict = rule(claims.get(event.subject, UNCLAIMED), event)
        claims[event.subject] = verdict.claim
        if verdict.admitted:
            admitted.append(event)
    return admitted


def of(episode: str, events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event.subject == episode]


@given(logs())
def test_admission_is_its_definition(log: list[Event]) -> None:
    assert read(log, {}) == definition(log)


@given(logs(), st.lists(st.integers(0, 40)))
def test_chunks_and_restores_do_not_matter(log: list[Event], cuts: list[int]) -> None:
    """A reader that stops anywhere and goes on from the claims it stored admits what an unbroken reader does."""
    edges = [0, *sorted(min(cut, len(log)) for cut in cuts), len(log)]
    stored: dict[str, Claim] = {}
    admitted: list[Event] = []
    for start, end in pairwise(edges):
        claims = {episode: Claim(**claim._asdict()) for episode, claim in stored.items()}
        admitted += read(log[start:end], claims)
        stored = claims
    assert admitted == read(log, {})


@given(logs())
def test_refolding_only_what_was_admitted_changes_nothing(log: list[Event]) -> None:
    """The archive keeps fenced events too; a reader that restores from admitted rows alone stands at the same claim."""
    whole: dict[str, Claim] = {}
    admitted = read(log, whole)
    again: dict[str, Claim] = {}
    assert read(admitted, again) == admitted
    assert again == {episode: claim for episode, claim in whole.items() if claim != UNCLAIMED}


@given(logs())
def test_episodes_do_not_see_each_other(log: list[Event]) -> None:
    together = read(log, {})
    for episode in EPISODES:
        assert of(episode, together) == read(of(episode, log), {})


@given(logs())
def test_sequences_count_from_zero_without_a_gap(log: list[Event]) -> None:
    for episode in EPISODES:
        sequences = [event.sequence for event in of(episode, read(log, {}))]
        assert sequences == list(range(len(sequences)))


@given(logs())
def test_there_is_one_owner_at_a_time(log: list[Event]) -> None:
    for episode in EPISODES:
        owner = None
        for event in of(episode, read(log, {})):
            if event.type in CLAIM_TYPES:
                owner = event.source
            assert event.source == owner


@given(logs())
def test_nothing_counts_after_the_finish(log: list[Event]) -> None:
    for episode in EPISODES:
        types = [event.type for event in of(episode, read(log, {}))]
        assert not {*types[:-1]} & {*FINISH_TYPES}


@given(logs(), st.binary(max_size=8))
def test_payload_bytes_are_never_read(log: list[Event], junk: bytes) -> None:
    whole = read(log, {})
    assert [event.id for event in read([event._replace(data=junk) for event in log], {})] == [e.id for e in whole]


@given(logs(), st.data())
def test_what_was_admitted_can_be_delivered_again_without_effect(log: list[Event], data: st.DataObject) -> None:
    claims: dict[str, Claim] = {}
    admitted = read(log, claims)
    again = data.draw(st.lists(st.sampled_from(admitted)) if admitted else st.just([]))
    before = dict(claims)
    assert read(again, claims) == []
    assert claims == before


@given(logs())
def test_a_refusal_has_a_reason_and_leaves_the_claim_alone(log: list[Event]) -> None:
    claims: dict[str, Claim] = {}
    for event in log:
        before = claims.get(event.subject, UNCLAIMED)
        verdict = admit(before, event)
        assert verdict.admitted == (verdict.reason == "")
        assert verdict.admitted or verdict.claim == before
        claims[event.subject] = verdict.claim


def _story(*steps: tuple[str, str, int]) -> list[str]:
    claim, reasons = UNCLAIMED, []
    for index, (kind, source, sequence) in enumerate(steps):
        verdict = admit(claim, build(kind, "episode", source, sequence, f"event-{index}"))
        claim = verdict.claim
        reasons.append(verdict.reason)
    return reasons


def test_each_refusal_is_named() -> None:
    assert _story(
        ("turn", "a", 0),  # nobody has claimed it
        ("started", "a", 0),
        ("turn", "a", 1),
        ("turn", "a", 1),  # the same again
        ("turn", "a", 3),
        ("turn", "b", 2),
        ("resumed", "b", 2),
        ("turn", "a", 3),  # the old owner wakes up
        ("unknown", "b", 3),
        ("finished", "b", 4),
        ("resumed", "a", 5),
    ) == ["unclaimed", "", "", "duplicate_sequence", "gap", "not_owner", "", "not_owner", "", "", "after_finish"]


def test_a_claim_that_lost_the_race_is_fenced() -> None:
    assert _story(("started", "a", 0), ("started", "b", 0), ("turn", "b", 1), ("turn", "a", 1)) == [
        "", "duplicate_sequence", "not_owner", ""]


def test_an_empty_source_owns_nothing() -> None:
    assert _story(("turn", "", 0), ("unknown", "", 0)) == ["unclaimed", "unclaimed"]


BROKEN: dict[str, Admit] = {
    "lets anyone write": lambda claim, event: _unless(claim, event, "not_owner"),
    "accepts gaps": lambda claim, event: _unless(claim, event, "gap"),
    "accepts duplicates": lambda claim, event: _unless(claim, event, "duplicate_sequence"),
    "needs no claim": lambda claim, event: _unless(claim, event, "unclaimed"),
    "writes after the finish": lambda claim, event: _unless(claim, event, "after_finish"),
    "forgets who claimed": lambda claim, event: admit(claim._replace(owner=claim.owner and event.source), event),
    "lets the first owner keep it": lambda claim, event: _first_owner(claim, event),
    "knows version 1 alone": lambda claim, event: _first_version_only(claim, event),
    "drops unknown types": lambda claim, event: (
        Verdict(claim, False, "unknown") if "mood" in event.type else admit(claim, event)),
}


def _unless(claim: Claim, event: Event, reason: str) -> Verdict:
    verdict = admit(claim, event)
    if verdict.reason != reason:
        return verdict
    owner = event.source if is_claim(event.type) else claim.owner
    return Verdict(Claim(event.sequence, owner, event.type in FINISH_TYPES), True, "")


def _first_version_only(claim: Claim, event: Event) -> Verdict:
    """A claim of another version is taken for any other event."""
    if not is_claim(event.type) or event.type.endswith(".v1"):
        return admit(claim, event)
    return admit(claim, event._replace(type="headrace.mood.noted.v1"))


def _first_owner(claim: Claim, event: Event) -> Verdict:
    verdict = admit(claim, event)
    return verdict._replace(claim=verdict.claim._replace(owner=claim.owner or verdict.claim.owner))


@pytest.mark.parametrize("name", BROKEN)
def test_the_drawn_logs_catch_a_broken_rule(name: str) -> None:
    """The properties above mean something: a rule with one fault differs on some drawn log."""
    try:
        find(logs(), lambda log: read(log, {}, BROKEN[name]) != definition(log),
             settings=settings(phases=[Phase.generate], max_examples=300))
    except NoSuchExample:
        pytest.fail(f"no drawn log tells admission from one that {name}")
