"""Logs of hostile writers, and admission restated as the definition it must equal.

A log is drawn against the head that the definition gives, so most events land near it: the owner goes on, a zombie
goes on from where it stood, an event is delivered twice, two writers claim at once, one leaves a gap.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from schemas.codec import make_event
from schemas.envelope import Event, wire_type
from schemas.events import (
    EpisodeFinished,
    EpisodeResumed,
    EpisodeStarted,
    Payload,
    SandboxInfo,
    ToolCalled,
    ToolReturned,
    TurnGenerated,
)
from schemas.tokens import pack_ids, pack_logprobs

EPISODES = ("episode-a", "episode-b")
SOURCES = ("writer-1", "writer-2", "writer-3")
CLAIM_TYPES = tuple(wire_type(name, version) for name in ("episode.started", "episode.resumed") for version in (1, 2))
FINISH_TYPES = (wire_type("episode.finished"), wire_type("episode.finished", 2))

PAYLOADS: dict[str, Payload] = {
    "started": EpisodeStarted(
        run_id="run", task_id="task", policy="tiny", sandbox=SandboxInfo(backend="process"), at=1),
    "resumed": EpisodeResumed(attempt=1, at=2),
    "restarted": EpisodeResumed(attempt=2, restart=True, at=3),
    "turn": TurnGenerated(turn=0, context=pack_ids([1, 2]), generated=pack_ids([3]), logprobs=pack_logprobs([-0.5]),
                          versions=[(4, 1)], started_at=4, finished_at=5),
    "called": ToolCalled(turn=0, call_id="call", tool="calc", arguments="{}", at=6),
    "returned": ToolReturned(turn=0, call_id="call", status="ok", workspace="sha256:" + "0" * 64, at=7),
    "finished": EpisodeFinished(termination="completed", at=8),
}
FOREIGN = {"started in v2": CLAIM_TYPES[1], "resumed in v2": CLAIM_TYPES[3], "finished in v2": FINISH_TYPES[1],
           "unknown": "headrace.mood.noted.v1", "newer": "headrace.turn.generated.v9", "alien": "com.example.ping"}
CORRUPT = {"corrupt": "headrace.turn.generated.v1"}
KINDS = (*PAYLOADS, *FOREIGN, *CORRUPT)


def build(kind: str, episode: str, source: str, sequence: int, event_id: str) -> Event:
    if kind in PAYLOADS:
        return make_event(PAYLOADS[kind], subject=episode, source=source, time_us=0, sequence=sequence,
                          event_id=event_id)
    wire = {**FOREIGN, **CORRUPT}[kind]
    return Event(event_id, source, wire, episode, sequence, 0, b"\x81\xa4turn\xa3bad")


def definition(events: Sequence[Event]) -> list[Event]:
    """Which events count, straight from the words of the design. Slow, and without state to carry over."""
    admitted: list[Event] = []
    for event in events:
        own = [other for other in admitted if other.subject == event.subject]
        claims = [other for other in own if other.type in CLAIM_TYPES]
        if any(other.type in FINISH_TYPES for other in own) or event.sequence != len(own):
            continue
        if event.type in CLAIM_TYPES or (claims and claims[-1].source == event.source):
            admitted.append(event)
    return admitted


_ACTIONS = st.tuples(
    st.sampled_from(EPISODES), st.sampled_from(SOURCES),
    st.sampled_from(("started", "resumed", *KINDS, *("turn", "called", "returned") * 3)),
    st.sampled_from((0, 0, 0, 0, 0, 0, -1, -2, 1, 7)), st.booleans())
_DELIVERED_AGAIN = st.integers(0, 10_000)


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """One partition's records. `lag` is how far from the true head the writer believes it stands."""
    log: list[Event] = []
    fewest = draw(st.sampled_from((0, 8, 24)))
    actions = st.lists(st.one_of(_ACTIONS, _ACTIONS, _DELIVERED_AGAIN), min_size=fewest, max_size=40)
    for index, action in enumerate(draw(actions)):
        if isinstance(action, int):
            log.extend(log[action % len(log):][:1] if log else [])
            continue
        episode, source, kind, lag, as_owner = action
        own = [event for event in definition(log) if event.subject == episode]
        if as_owner and own:
            source = own[-1].source
        log.append(build(kind, episode, source, max(len(own) + lag, 0), f"event-{index}"))
    return log
