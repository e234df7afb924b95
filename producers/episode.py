"""THE episode loop: plan, act in the sandbox, observe, ask whether it is over, stop, hand over the submission.

Every step is an event, durable before the next one. Failures are data: the loop always ends in a termination, and an
infrastructure's failure starts the next attempt in the same stream, or ends the episode without a submission, so it
never becomes a reward. Only `Lost` (another writer owns the episode) and a failing log leave `run`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Sequence

import msgspec

from artifacts.store import ArtifactStore
from producers.dialects import Call, Malformed, dialect
from producers.state import State
from producers.tools import DONE, Denied, Tool, tools_of
from producers.workbench import Outcome, Workbench
from producers.writer import Lost, Writer
from schemas.enums import Termination, ToolStatus
from schemas.errors import HeadraceError, LogError, PolicyError, SandboxError, SchemaError
from schemas.events import (
    EpisodeFinished,
    EpisodeRequested,
    EpisodeResumed,
    EpisodeStarted,
    Limits,
    Payload,
    SandboxInfo,
    ToolCalled,
    ToolReturned,
    TurnGenerated,
)
from schemas.failpoints import hit
from schemas.ids import now_us
from schemas.policy import Policy, TurnRequest
from tasks.task import Submission, Task, store_submission
from tasks.terminal import predicate

HOST = socket.gethostname()
_NO_SUBMISSION = frozenset({Termination.CANCELLED, Termination.INFRA_FAILURE})
_LOGGER = logging.getLogger("headrace.episode")


class Failure(Exception):
    """Infrastructure failed: this attempt is over."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class Open(msgspec.Struct, frozen=True):
    """A call of the last turn that has no result yet."""

    turn: TurnGenerated
    index: int
    call: Call | Malformed
    attempt: int
    """Of its newest call event; 0: it was not called."""


class Episode:
    """One episode in one process. `attempt` counts restarts; `state` is what the current attempt has come to.

    Raises TaskError where the task names a dialect, tool or predicate that is not known.
    """

    def __init__(self, request: EpisodeRequested, task: Task, policy: Policy, writer: Writer, bench: Workbench,
                 artifacts: ArtifactStore, attempts: int) -> None:
        self.request, self.task, self.policy = request, task, policy
        self._writer, self._bench, self._artifacts, self._attempts = writer, bench, artifacts, attempts
        self.tools, self._dialect = tools_of(task), dialect(task.dialect)
        self._terminal = predicate(task.terminal)
        self._limits = stricter(request.limits, task.limits)
        self._began = time.monotonic()
        self.attempt, self.cancelled, self.used_s = 1, False, 0.0
        self.state = self.fresh_state()
        self.unsettled: list[Open] = []
        """Calls that a resumed episode has to settle before it goes on."""

    def fresh_state(self) -> State:
        return State(self.policy.encode, self.task.prompt)

    async def run(self, claim: Payload) -> EpisodeFinished:
        """Claim the episode, play attempts until one ends, finish. Raises Lost, LogError."""
        await self._writer.claim(claim)
        hit("producer:claimed")
        while True:
            try:
                return await self._finish(await self._attempt())
            except (Lost, LogError):
                raise
            except Failure as failure:
                kind = failure.kind
            except SandboxError as broken:
                kind = broken.kind
            except HeadraceError as wrong:
                kind = wrong.code
            except Exception as wrong:  # A fault of ours is infrastructure's too: never a reward, never a lost episode.
                _LOGGER.exception("episode %s failed", self.request.episode_id)
                kind = f"internal:{type(wrong).__name__}"
            if self.attempt >= self._attempts:
                return await self._finish(Termination.INFRA_FAILURE, kind)
            await self._restart(kind)

    async def _restart(self, reason: str) -> None:
        self.attempt += 1
        self.state, self.unsettled = self.fresh_state(), []
        self._began, self.used_s = time.monotonic(), 0.0
        await self._writer.claim(EpisodeResumed(
            attempt=self.attempt, restart=True, reason=reason, from_sequence=self._writer.sequence, host=HOST,
            at=now_us()))

    async def _attempt(self) -> Termination:
        await self._bench.replace(self.state.workspace)
        try:
            return await self._play()
        except (PolicyError, SchemaError) as wrong:
            # A turn that failed or was refused is no event: nothing was done by it.
            _LOGGER.warning("episode %s: %s", self.request.episode_id, wrong)
            return Termination.POLICY_ERROR

    async def _play(self) -> Termination:
        unsettled, self.unsettled = self.unsettled, []
        await self._act(unsettled)
        while (over := self._over()) is None:
            turn = await self._plan()
            if turn is None:
                return Termination.WALL_CLOCK
            calls = self.read(turn)
            await self._act([Open(turn, index, call, 0) for index, call in enumerate(calls)], turn)
        return over

    def _over(self) -> Termination | None:
        state, limits = self.state, self._limits
        if self._terminal(state.calls):
            return Termination.COMPLETED
        if self.cancelled:
            return Termination.CANCELLED
        if state.turns >= limits.max_turns:
            return Termination.MAX_TURNS
        if len(state.context) >= limits.token_budget:
            return Termination.TOKEN_BUDGET
        return Termination.WALL_CLOCK if self._left_s() <= 0 else None

    def _left_s(self) -> float:
        return self._limits.wall_clock_s - self.used_s - (time.monotonic() - self._began)

    async def _plan(self) -> TurnGenerated | None:
        """The policy's next turn; null when the wall clock ran out first."""
        request, state, started_at = self.request, self.state, now_us()
        room = self._limits.token_budget - len(state.context)
        sampling = msgspec.structs.replace(request.sampling, max_tokens=min(request.sampling.max_tokens, room))
        wanted = TurnRequest(
            episode_id=request.episode_id, task_id=request.task_id, task_digest=request.task_digest, turn=state.turns,
            context=list(state.context), history=list(state.history), sampling=sampling,
            sample_index=request.sample_index, version=request.version)
        try:
            async with asyncio.timeout(self._left_s()):
                generation = await self.policy.generate(wanted)
        except TimeoutError:
            return None
        return state.take(generation, started_at)

    def read(self, turn: TurnGenerated) -> list[Call | Malformed]:
        """The calls of a turn. One that was cut off in the middle is not run by halves."""
        if turn.finish_reason == "length":
            return [Malformed("", turn.text, "the turn was cut off at its token limit")]
        return self._dialect.parse(turn.text)

    async def _act(self, calls: Sequence[Open], turn: TurnGenerated | None = None) -> None:
        """Run the calls of a turn in order until one ends the episode. The turn is written with its first call."""
        lead: tuple[Payload, ...] = (turn,) if turn else ()
        for call in calls:
            if self._terminal(self.state.calls):
                break
            await self._settle(call, lead)
            lead = ()

    async def _settle(self, open_call: Open, lead: tuple[Payload, ...]) -> None:
        """One call: every attempt is a called and a returned event, and the last result is what the policy sees."""
        call, tool = open_call.call, self.tools.get(open_call.call.tool)
        if open_call.attempt and tool is not None and not tool.repeatable:
            outcome = self._refused(ToolStatus.OUTCOME_UNKNOWN, "the producer was lost during the call")
            returned = await self._returned(self._called(open_call, open_call.attempt), outcome)
        else:
            returned = await self._run(open_call, tool, lead)
        self.state.settle(call.tool, call.raw, returned, answer_of(call))

    async def _run(self, open_call: Open, tool: Tool | None, lead: tuple[Payload, ...]) -> ToolReturned:
        retries = tool.retries if tool is not None and tool.repeatable else 0
        attempt = open_call.attempt
        while True:
            attempt += 1
            called = self._called(open_call, attempt)
            await self._writer.append(*lead, called)
            hit("producer:called")
            lead = ()
            outcome = await self._execute(open_call.call, tool)
            returned = await self._returned(called, outcome)
            if outcome.status != ToolStatus.SANDBOX_BROKEN:
                return returned
            if retries == 0:
                raise Failure(outcome.failure_kind)
            retries -= 1
            await self._bench.replace(self.state.workspace)

    async def _execute(self, call: Call | Malformed, tool: Tool | None) -> Outcome:
        """Check and run one call. Whatever is wrong with it is a typed status that the policy sees."""
        if isinstance(call, Malformed):
            return self._refused(ToolStatus.MALFORMED, call.problem)
        if tool is None:
            return self._refused(ToolStatus.UNKNOWN_TOOL, f"{call.tool!r} is not one of {', '.join(self.tools)}")
        if (problem := tool.problem(call.arguments)) is not None:
            return self._refused(ToolStatus.MALFORMED, problem)
        if tool.build is None:
            return Outcome(status=ToolStatus.OK)
        try:
            command = tool.build(call.arguments)
        except Denied as denied:
            return self._refused(ToolStatus.DENIED, str(denied))
        return await self._bench.run(tool, command, self.state.workspace, self._left_s())

    def _refused(self, status: ToolStatus, problem: str) -> Outcome:
        return Outcome(status=status, shown=self._dialect.cut(self._dialect.error(status, problem))[0])

    def _called(self, open_call: Open, attempt: int) -> ToolCalled:
        turn = open_call.turn.turn
        return ToolCalled(turn=turn, call_id=call_id_of(self.attempt, turn, open_call.index), tool=open_call.call.tool,
                          arguments=open_call.call.raw, attempt=attempt, at=now_us())

    async def _returned(self, called: ToolCalled, outcome: Outcome) -> ToolReturned:
        returned = ToolReturned(
            turn=called.turn, call_id=called.call_id, attempt=called.attempt, status=outcome.status,
            exit_code=outcome.exit_code, output=outcome.shown, output_bytes=outcome.output_bytes,
            truncated=outcome.truncated, output_ref=outcome.output_ref, workspace=outcome.workspace,
            duration_s=outcome.duration_s, at=now_us())
        await self._writer.append(returned)
        hit("producer:returned")
        return returned

    async def _finish(self, termination: Termination, failure_kind: str | None = None) -> EpisodeFinished:
        state, submission = self.state, None
        if termination not in _NO_SUBMISSION:
            submission = await asyncio.to_thread(store_submission, Submission(
                task_id=self.task.task_id, task_digest=self.request.task_digest, workspace=state.workspace,
                answer=state.answer, calls=state.calls, termination=termination), self._artifacts)
        finished = EpisodeFinished(
            termination=termination, failure_kind=failure_kind, answer=state.answer, workspace=state.workspace,
            submission=submission, turns=state.turns, tool_calls=len(state.calls),
            context_token_count=state.context_token_count, generated_token_count=state.generated_token_count,
            at=now_us())
        hit("producer:finishing")
        await self._writer.append(finished)
        return finished


def started(request: EpisodeRequested, tokenizer: str | None, sandbox: SandboxInfo) -> EpisodeStarted:
    """The claim by which an episode begins."""
    return EpisodeStarted(
        run_id=request.run_id, task_id=request.task_id, policy=request.policy, tokenizer=tokenizer, sandbox=sandbox,
        host=HOST, at=now_us(), group_id=request.group_id, sample_index=request.sample_index,
        task_digest=request.task_digest, kind=request.kind, purpose=request.purpose, requested_at=request.requested_at)


def call_id_of(attempt: int, turn: int, index: int) -> str:
    """The same call has the same id in whatever process it is made."""
    return f"{attempt}.{turn}.{index}"


def answer_of(call: Call | Malformed) -> str | None:
    if isinstance(call, Call) and call.tool == DONE and isinstance(call.arguments, dict):
        answer = call.arguments.get("answer")
        return answer if isinstance(answer, str) else None
    return None


def stricter(asked: Limits, own: Limits) -> Limits:
    """A request can tighten the limits of a task, never loosen them."""
    return Limits(max_turns=min(asked.max_turns, own.max_turns), token_budget=min(asked.token_budget, own.token_budget),
                  wall_clock_s=min(asked.wall_clock_s, own.wall_clock_s))
