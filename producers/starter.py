"""Sets an episode up (task, policy, sandbox, writer) and runs it, from its start or from where its past ends.

What cannot be set up is infrastructure's failure: claimed and finished at once, without a submission. But a task that
is not in the artifact store may be in that of another home on the same log, which asked for it: that one comes first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor

from artifacts.store import ArtifactStore
from eventlog.log import EventLog
from producers.desk import Desk
from producers.episode import HOST, Episode, Failure, started
from producers.ownership import Ownership
from producers.resume import CRASHES, Past, resume
from producers.workbench import Workbench, sandbox_info
from producers.writer import Lost, Writer
from sandboxes.sandbox import Backend
from schemas.admission import UNCLAIMED
from schemas.enums import Termination
from schemas.errors import HeadraceError, SandboxError
from schemas.events import EpisodeFinished, EpisodeRequested, EpisodeResumed, Payload
from schemas.ids import is_digest, now_us
from schemas.settings import Settings
from tasks.task import load_task

LOOKS = 4
"""How often a task is looked for, `shift.RETAKE_S` apart, before its absence is a failure."""
_LOGGER = logging.getLogger("headrace.producer")


class Starter:
    def __init__(self, log: EventLog, artifacts: ArtifactStore, backend: Backend, settings: Settings, pool: Executor,
                 ownership: Ownership, desk: Desk, source: str) -> None:
        self._log, self._artifacts, self._backend, self._settings = log, artifacts, backend, settings
        self._pool, self._ownership, self._desk, self._source = pool, ownership, desk, source
        self._looks: Counter[str] = Counter()
        """By episode: how often its task was looked for in vain."""

    async def run(self, request: EpisodeRequested, past: Past | None,
                  set_up: Callable[[Episode], None]) -> EpisodeFinished:
        """The finish of the episode. `set_up` is called with it before it claims anything. Raises Lost, LogError."""
        claim = past.transcript.claim if past else UNCLAIMED
        writer = Writer(self._log, self._ownership, request.episode_id, self._source, claim)
        try:
            try:
                episode, payload, bench = await self._set_up(request, past, writer)
            except (Failure, HeadraceError) as wrong:
                _LOGGER.warning("episode %s cannot be set up: %s", request.episode_id, wrong)
                if past is None and self._may_be_anothers(request):
                    raise Lost("its task is not in this home's artifact store") from None
                kind = wrong.kind if isinstance(wrong, Failure | SandboxError) else wrong.code
                return await self._give_up(request, past, writer, kind)
            set_up(episode)
            try:
                return await episode.run(payload)
            finally:
                await bench.close()
        finally:
            await self._desk.release(request.policy, request.run_id)

    def _may_be_anothers(self, request: EpisodeRequested) -> bool:
        if not is_digest(request.task_digest) or self._artifacts.has(request.task_digest):
            return False
        self._looks[request.episode_id] += 1
        return self._looks[request.episode_id] < LOOKS

    async def _set_up(self, request: EpisodeRequested, past: Past | None,
                      writer: Writer) -> tuple[Episode, Payload, Workbench]:
        policy = await self._desk.take(request.policy, request.run_id, request.version)
        if past and sum(not resumed.restart for resumed in past.transcript.resumes) >= CRASHES:
            raise Failure("crash_loop")
        if past and past.transcript.violations:
            raise Failure("history_unreadable")
        task = await asyncio.to_thread(load_task, request.task_digest, self._artifacts)
        bench = Workbench(self._backend, self._artifacts, self._pool, self._settings, task, owner=request.episode_id)
        episode = Episode(request, task, policy, writer, bench, self._artifacts, self._settings.producer_attempts)
        if past:
            return episode, resume(episode, past), bench
        info = await asyncio.to_thread(sandbox_info, self._backend, self._settings, task)
        return episode, started(request, policy.tokenizer_digest, info), bench

    async def _give_up(self, request: EpisodeRequested, past: Past | None, writer: Writer,
                       kind: str) -> EpisodeFinished:
        turns = past.transcript.turns if past else []
        claim: Payload = started(request, None, sandbox_info(self._backend, self._settings, None))
        if past:
            claim = EpisodeResumed(attempt=past.transcript.attempt, reason=kind, at=now_us(), host=HOST,
                                   from_sequence=past.transcript.claim.sequence)
        await writer.claim(claim)
        finished = EpisodeFinished(
            termination=Termination.INFRA_FAILURE, failure_kind=kind, turns=len(turns),
            tool_calls=sum(len(turn.calls) for turn in turns), at=now_us())
        await writer.append(finished)
        return finished
