"""The policies of a producer: opened when first needed, given the weights that their run published.

A policy that samples from weights is opened once for each run, so two runs never see each other's versions. Of equal
versions of a run the first published one counts.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Protocol, runtime_checkable

from producers.episode import Failure
from producers.policies import open_policy
from schemas.events import WeightsPublished
from schemas.policy import Policy
from schemas.settings import Settings

WEIGHTS_WAIT_S = 60.0
KEPT_IDLE = 4
"""Opened policies that no episode uses, kept for the next one."""
Key = tuple[str, str]


@runtime_checkable
class Weighted(Protocol):
    """A policy that samples from published weights."""

    def offer(self, version: int, directory: Path) -> None: ...

    def has(self, version: int) -> bool: ...


class Desk:
    def __init__(self, settings: Settings) -> None:
        self._settings, self._home = settings, Path(settings.home)
        self._opened: dict[Key, asyncio.Task[Policy]] = {}
        self._users: dict[Key, int] = {}
        self._weights: dict[str, dict[int, Path]] = {}
        self._news = asyncio.Event()

    def published(self, weights: WeightsPublished) -> None:
        known = self._weights.setdefault(weights.run_id, {})
        if weights.version in known:
            return
        known[weights.version] = self._home / weights.path
        for (_, run_id), opening in self._opened.items():
            if run_id == weights.run_id and opening.done() and not opening.exception():
                self._offer_all(opening.result(), run_id)
        self._news.set()

    async def take(self, name: str, run_id: str, version: int | None) -> Policy:
        """The policy, with the weights that were asked for. Raises Failure or what opening it raised.

        Give it back with `release`, whatever this raised.
        """
        key = _key(name, run_id)
        self._users[key] = self._users.get(key, 0) + 1
        if key not in self._opened:
            self._opened[key] = asyncio.ensure_future(self._open(name, run_id))
        try:
            policy = await asyncio.shield(self._opened[key])
        except Exception:
            self._opened.pop(key, None)
            raise
        if version is not None and isinstance(policy, Weighted):
            await self._wait_for(policy, version)
        return policy

    async def release(self, name: str, run_id: str) -> None:
        key = _key(name, run_id)
        self._users[key] -= 1
        idle = [other for other, users in self._users.items() if users == 0]
        for old in idle[:-KEPT_IDLE]:
            await self._close(old)

    async def close(self) -> None:
        for key in list(self._opened):
            await self._close(key)

    async def _open(self, name: str, run_id: str) -> Policy:
        policy = await asyncio.to_thread(open_policy, name, self._settings)
        self._offer_all(policy, run_id)
        return policy

    def _offer_all(self, policy: Policy, run_id: str) -> None:
        if isinstance(policy, Weighted):
            for version, path in self._weights.get(run_id, {}).items():
                policy.offer(version, path)

    async def _wait_for(self, policy: Weighted, version: int) -> None:
        """Weights that are not there yet may be on their way."""
        try:
            async with asyncio.timeout(WEIGHTS_WAIT_S):
                while not policy.has(version):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise Failure("weights_missing") from None

    async def _close(self, key: Key) -> None:
        opening = self._opened.pop(key, None)
        self._users.pop(key, None)
        if opening is None:
            return
        opening.cancel()
        result = (await asyncio.gather(opening, return_exceptions=True))[0]
        if not isinstance(result, BaseException):
            await result.close()


def _key(name: str, run_id: str) -> Key:
    """Scripts are the same in every run."""
    return (name, "" if name.startswith("scripted:") else run_id)
