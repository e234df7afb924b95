"""The policy that verifiers of this process may ask for an opinion: setting `judge_policy`, opened when first asked.

Verifiers do not know where policies come from: OPENER is a name, so that this room imports none of theirs.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Coroutine
from typing import Any, TypeVar

from schemas.policy import Policy
from schemas.settings import Settings

OPENER = "producers.policies:open_policy"
_Result = TypeVar("_Result")


class JudgePolicy:
    """A policy and the one event loop that it is used in."""

    def __init__(self, name: str, settings: Settings | None = None, policy: Policy | None = None) -> None:
        self.name = name
        self._settings, self._policy = settings, policy
        self._runner: asyncio.Runner | None = None

    def open(self) -> Policy:
        """Raises what the opener raises: ConfigError, UnavailableError, PolicyError."""
        if self._policy is None:
            module, _, function = OPENER.partition(":")
            self._policy = getattr(importlib.import_module(module), function)(self.name, self._settings)
        assert self._policy is not None
        return self._policy

    def run(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(coroutine)

    def close(self) -> None:
        if self._policy is not None:
            self.run(self._policy.close())
        if self._runner is not None:
            self._runner.close()
        self._policy = self._runner = None


_current: JudgePolicy | None = None


def use(judge: JudgePolicy | None) -> None:
    """What verdicts from now on may ask."""
    global _current
    _current = judge


def use_settings(settings: Settings) -> None:
    use(JudgePolicy(settings.judge_policy, settings) if settings.judge_policy else None)


def current() -> JudgePolicy | None:
    return _current
