"""What the policy has seen and done in the current attempt of an episode: tokens, history, calls, workspace.

Live turns and turns read back from the log go through the same methods, so a resumed episode stands exactly where it
stood: `context` is all ids of the segment, `pending` its end that is in no turn yet.
"""

from __future__ import annotations

from collections.abc import Callable

from schemas.enums import ToolStatus
from schemas.events import ToolReturned, TurnGenerated
from schemas.ids import now_us
from schemas.policy import Generation, Observation
from schemas.tokens import PrefixDigest, check_generated, pack_ids, pack_logprobs, unpack_ids
from tasks.task import SubmittedCall

Encode = Callable[[str, str], list[int]]


class State:
    def __init__(self, encode: Encode, prompt: str) -> None:
        self._encode = encode
        self._prefix = PrefixDigest()
        self.context: list[int] = []
        self.pending: list[int] = []
        self.history: list[Observation] = []
        self.turns = 0
        self.calls: list[SubmittedCall] = []
        self.answer: str | None = None
        self.workspace: str | None = None
        """Digest after the last call that changed something; null: the task's files."""
        self.context_token_count = self.generated_token_count = 0
        self.observe("user", prompt)

    def observe(self, role: str, text: str) -> None:
        ids = self._encode(role, text)
        self.context += ids
        self.pending += ids
        self.history.append(Observation(role, text))

    def take(self, generation: Generation, started_at: int) -> TurnGenerated:
        """The event of a sampled turn. Raises SchemaError, and nothing has changed, where its logprobs do not hold."""
        check_generated(generation.ids, generation.logprobs, where=f"turn {self.turns}")
        logprobs = pack_logprobs(generation.logprobs) if generation.logprobs is not None else None
        context, generated = pack_ids(self.pending), pack_ids(generation.ids)
        self._prefix.add(context)
        turn = TurnGenerated(
            turn=self.turns, context=context, generated=generated, logprobs=logprobs, versions=generation.versions,
            prefix=self._prefix.value(), text=generation.text, finish_reason=generation.finish_reason,
            sampler=generation.sampler, started_at=started_at, finished_at=now_us())
        self._prefix.add(generated)
        self._append(len(self.pending), generation.ids)
        return turn

    def replay(self, turn: TurnGenerated) -> None:
        """A turn from the log. Its own context counts, whatever this policy would encode today."""
        context, generated = unpack_ids(turn.context), unpack_ids(turn.generated)
        self.context[len(self.context) - len(self.pending):] = context
        self._prefix.add(turn.context)
        self._prefix.add(turn.generated)
        self._append(len(context), generated)

    def _append(self, context: int, generated: list[int]) -> None:
        self.context += generated
        self.pending = []
        self.turns += 1
        self.context_token_count += context
        self.generated_token_count += len(generated)

    def settle(self, tool: str, arguments: str, returned: ToolReturned, answer: str | None) -> None:
        """The final result of a call: it counts for the submission, and the policy sees it."""
        self.calls.append(SubmittedCall(turn=returned.turn, tool=tool, arguments=arguments, status=returned.status,
                                        output=returned.output))
        self.workspace = returned.workspace or self.workspace
        if returned.status == ToolStatus.OK and answer is not None:
            self.answer = answer
        self.observe("tool", returned.output)
