"""Episodes as a producer would write them: a claim, a turn, a finish."""

from __future__ import annotations

from schemas.codec import make_event
from schemas.envelope import Event
from schemas.events import ArtifactRef, EpisodeFinished, EpisodeStarted, Payload, SandboxInfo, TurnGenerated
from schemas.ids import now_us


def event(episode: str, sequence: int, payload: Payload, source: str = "producer-1") -> Event:
    return make_event(payload, subject=episode, source=source, time_us=now_us(), sequence=sequence)


def started(run_id: str = "run-1") -> EpisodeStarted:
    return EpisodeStarted(run_id=run_id, task_id="t", policy="scripted", sandbox=SandboxInfo(backend="bubblewrap"),
                          at=now_us())


def turn() -> TurnGenerated:
    return TurnGenerated(turn=0, context=b"", generated=b"", started_at=now_us(), finished_at=now_us())


def finished(submission: str | None, termination: str = "completed") -> EpisodeFinished:
    ref = ArtifactRef(submission, 1) if submission else None
    return EpisodeFinished(termination=termination, submission=ref, at=now_us())


def episode(name: str, submission: str | None, termination: str = "completed") -> list[Event]:
    payloads: list[Payload] = [started(), turn(), finished(submission, termination)]
    return [event(name, sequence, payload) for sequence, payload in enumerate(payloads)]
