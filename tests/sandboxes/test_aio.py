"""Sandboxes under an event loop: awaited calls, and cancellation that leaves nothing running."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from sandboxes.aio import acquire
from sandboxes.bubblewrap import BubblewrapBackend
from sandboxes.sandbox import Backend, SandboxSpec
from tests.sandboxes.host import processes_in


def test_many_episodes_at_once(backend: Backend) -> None:
    async def episode(number: int, pool: ThreadPoolExecutor) -> str:
        sandbox = await acquire(backend, SandboxSpec(), pool)
        await sandbox.write("n", b"%d" % number)
        result = await sandbox.exec(["cat", "n"])
        assert result.stdout == await sandbox.read("n") == b"%d" % number
        taken = await sandbox.snapshot()
        await sandbox.close()
        return taken

    async def run() -> list[str]:
        with ThreadPoolExecutor(8) as pool:
            return await asyncio.gather(*(episode(number % 4, pool) for number in range(16)))

    assert len(set(asyncio.run(run()))) == 4


def test_a_cancelled_command_dies_with_its_sandbox(bubblewrap: BubblewrapBackend) -> None:
    async def run() -> list[int]:
        with ThreadPoolExecutor(4) as pool:
            sandbox = await acquire(bubblewrap, SandboxSpec(), pool)
            space = (await sandbox.exec(["readlink", "/proc/self/ns/pid"])).stdout.decode().strip()
            waiting = asyncio.create_task(sandbox.exec(["sleep", "60"], deadline_s=60))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await sandbox.close()
            return processes_in(space)

    assert asyncio.run(run()) == []


def test_a_cancelled_acquire_leaves_no_sandbox(bubblewrap: BubblewrapBackend) -> None:
    async def run() -> None:
        with ThreadPoolExecutor(4) as pool:
            waiting = [asyncio.create_task(acquire(bubblewrap, SandboxSpec(), pool)) for _ in range(8)]
            await asyncio.sleep(0)
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(run())
    assert bubblewrap.open_count == 0
