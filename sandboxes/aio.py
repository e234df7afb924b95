"""Sandboxes awaited from an event loop: each blocking method runs in a thread of the given pool.

A cancelled wait returns at once; the command itself ends when the sandbox is closed, which is safe at any time.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Literal, TypeVar

from sandboxes.sandbox import Backend, ExecResult, Sandbox, SandboxSpec, Session

T = TypeVar("T")


class AsyncSession:
    """The Session contract with `await`; `session` is the blocking one."""

    def __init__(self, session: Session, executor: Executor) -> None:
        self.session, self._executor = session, executor

    async def run(self, text: str, *, deadline_s: float = 30.0) -> ExecResult:
        call = functools.partial(self.session.run, text, deadline_s=deadline_s)
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)


class AsyncSandbox:
    """The Sandbox contract with `await`; `sandbox` is the blocking one."""

    def __init__(self, sandbox: Sandbox, executor: Executor) -> None:
        self.sandbox, self._executor = sandbox, executor

    @property
    def id(self) -> str:
        return self.sandbox.id

    @property
    def backend(self) -> str:
        return self.sandbox.backend

    async def exec(self, argv: Sequence[str], *, deadline_s: float = 30.0, stdin: bytes = b"",
                   environment: Mapping[str, str] | None = None, cwd: str | None = None) -> ExecResult:
        return await self._await(self.sandbox.exec, argv, deadline_s=deadline_s, stdin=stdin, environment=environment,
                                 cwd=cwd)

    def session(self, kind: Literal["shell", "python"], state: bytes = b"") -> AsyncSession:
        return AsyncSession(self.sandbox.session(kind, state), self._executor)

    async def read(self, path: str, limit_bytes: int = 16 << 20) -> bytes:
        return await self._await(self.sandbox.read, path, limit_bytes)

    async def write(self, path: str, data: bytes) -> None:
        await self._await(self.sandbox.write, path, data)

    async def snapshot(self) -> str:
        return await self._await(self.sandbox.snapshot)

    async def close(self) -> None:
        """Ends also under cancellation: a sandbox is never left behind."""
        closing = asyncio.ensure_future(self._await(self.sandbox.close))
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await closing
            raise

    async def _await(self, method: Callable[..., T], *arguments: Any, **named: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, functools.partial(method, *arguments, **named))


async def acquire(backend: Backend, spec: SandboxSpec, executor: Executor) -> AsyncSandbox:
    """A fresh sandbox. If the wait is cancelled while it is being made, it is closed as soon as it is there."""
    future = executor.submit(backend.acquire, spec)
    try:
        return AsyncSandbox(await asyncio.wrap_future(future), executor)
    except asyncio.CancelledError:
        future.add_done_callback(_close_unwanted)
        raise


def _close_unwanted(future: Any) -> None:
    if not future.cancelled() and future.exception() is None:
        future.result().close()
