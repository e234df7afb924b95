"""Reads a subscription in a thread of its own and hands what it polled to an event loop, one batch at a time.

Subscriptions block and belong to one thread; folds belong to the loop. The thread waits until a batch was handled, so
a slow loop slows the reading and nothing piles up.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any

from eventlog.log import Subscription, TopicPartition
from schemas.envelope import Record

Handle = Callable[[list[Record]], None]
POLL_S = 0.1


class Tail:
    """`open_subscription` runs in the thread. `positions` follows what was handled: next offset by partition."""

    def __init__(self, name: str, open_subscription: Callable[[Tail], Subscription], handle: Handle) -> None:
        self._open, self._handle = open_subscription, handle
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._commits: dict[TopicPartition, int] = {}
        self._moved = asyncio.Event()
        self.positions: dict[TopicPartition, int] = {}
        self.failure: asyncio.Future[None] = self._loop.create_future()
        """Fails when the reading failed; done when it was closed."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def reached(self, ends: Mapping[TopicPartition, int]) -> None:
        """Wait until everything before `ends` was handled. Raises what ended the reading."""
        while any(self.positions.get(partition, -1) < end for partition, end in ends.items()):
            self._moved.clear()
            moved = asyncio.ensure_future(self._moved.wait())
            either: list[asyncio.Future[Any]] = [moved, self.failure]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            moved.cancel()
            if self.failure.done():
                self.failure.result()
                raise asyncio.CancelledError

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Remember for the group, at the next poll."""
        self._commits |= offsets

    async def close(self) -> None:
        self._stopping.set()
        await asyncio.to_thread(self._thread.join)

    def call(self, function: Callable[[], None]) -> None:
        """Run in the loop and wait for it; for callbacks of the subscription, which run in the thread."""

        async def run() -> None:
            function()

        coroutine = run()
        try:
            asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
        except RuntimeError:  # The loop is gone, and with it everybody who cared.
            coroutine.close()
            self._stopping.set()

    def _run(self) -> None:
        try:
            subscription = self._open(self)
            try:
                while not self._stopping.is_set():
                    self._poll(subscription)
            finally:
                if self._commits:
                    subscription.commit(self._take_commits(subscription))
                subscription.close()
        except Exception as wrong:
            self._end(wrong)
        else:
            self._end(None)

    def _poll(self, subscription: Subscription) -> None:
        if self._commits:
            subscription.commit(self._take_commits(subscription))
        records = subscription.poll(POLL_S)
        positions = {partition: subscription.position(partition) for partition in subscription.assignment()}
        if records or positions != self.positions:
            self.call(lambda: self._hand_over(records, positions))

    def _take_commits(self, subscription: Subscription) -> dict[TopicPartition, int]:
        commits, self._commits = self._commits, {}
        assigned = subscription.assignment()
        return {partition: offset for partition, offset in commits.items() if partition in assigned}

    def _hand_over(self, records: list[Record], positions: dict[TopicPartition, int]) -> None:
        self._handle(records)
        self.positions = positions
        self._moved.set()

    def _end(self, wrong: Exception | None) -> None:
        def settle() -> None:
            if self.failure.done():
                return
            if wrong is None:
                self.failure.set_result(None)
            else:
                self.failure.set_exception(wrong)

        self.call(settle)
