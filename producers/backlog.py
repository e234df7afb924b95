"""Requests of the partitions that are ours: what waits and in which order, and up to where everything is done.

The committed offset of a partition is its lowest unfinished request, so after a crash every unfinished one is read
again, whatever order they were started in.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from itertools import count

import msgspec

from eventlog.log import TopicPartition
from schemas.envelope import Position
from schemas.events import EpisodeRequested


class Item(msgspec.Struct, frozen=True, eq=False):
    request: EpisodeRequested
    partition: TopicPartition
    offset: int


class Backlog:
    def __init__(self) -> None:
        self._heap: list[tuple[bool, int, int, int, Item]] = []
        self._order = count()
        self._unfinished: dict[TopicPartition, dict[int, Item]] = {}
        self._next: dict[TopicPartition, int] = {}
        self._episodes: set[str] = set()

    def __len__(self) -> int:
        return sum(map(len, self._unfinished.values()))

    @property
    def waiting(self) -> int:
        return len(self._heap)

    def has(self, episode_id: str) -> bool:
        return episode_id in self._episodes

    def passed(self, position: Position) -> None:
        """A record that needs no work was read."""
        self._next[position.topic, position.partition] = position.offset + 1

    def add(self, request: EpisodeRequested, position: Position, resumable: bool) -> None:
        """A request that was read. Asking twice for one episode is asking once."""
        self.passed(position)
        if request.episode_id in self._episodes:
            return
        item = Item(request, (position.topic, position.partition), position.offset)
        self._episodes.add(request.episode_id)
        self._unfinished.setdefault(item.partition, {})[item.offset] = item
        self.put_back(item, resumable)

    def put_back(self, item: Item, resumable: bool) -> None:
        """Wait again. Episodes that were begun come first, then higher priorities, then whoever asked first."""
        request = item.request
        heapq.heappush(self._heap, (not resumable, -request.priority, request.requested_at, next(self._order), item))

    def pop(self) -> Item | None:
        while self._heap:
            item = heapq.heappop(self._heap)[-1]
            if self.holds(item):
                return item
        return None

    def taken_over_next(self, count: int) -> list[str]:
        """Episodes that were begun by others and come next."""
        return [item.request.episode_id for fresh, *_, item in heapq.nsmallest(count, self._heap)
                if not fresh and self.holds(item)]

    def holds(self, item: Item) -> bool:
        """Whether it is still ours and unfinished."""
        return self._unfinished.get(item.partition, {}).get(item.offset) is item

    def done(self, item: Item) -> None:
        if self.holds(item):
            del self._unfinished[item.partition][item.offset]
            self._episodes.discard(item.request.episode_id)

    def drop(self, partitions: Iterable[TopicPartition]) -> list[Item]:
        """Partitions that are no longer ours; returns what was unfinished in them."""
        dropped: list[Item] = []
        for partition in partitions:
            self._next.pop(partition, None)
            dropped += self._unfinished.pop(partition, {}).values()
        self._episodes.difference_update(item.request.episode_id for item in dropped)
        return dropped

    def committable(self) -> dict[TopicPartition, int]:
        """By partition: the lowest unfinished request, or the next that will be read."""
        return {partition: next(iter(self._unfinished.get(partition, ())), after)
                for partition, after in self._next.items()}
