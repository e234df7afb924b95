"""A backend that breaks on purpose: real sandboxes whose n-th command, or every one, fails like broken machinery."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandboxes.sandbox import Backend, ExecResult, Sandbox, SandboxSpec
from schemas.errors import SandboxError


class Breaking:
    """`errors` by the number of the command, from 1, over all sandboxes; `always`: every `acquire` or `exec`."""

    def __init__(self, inner: Backend, errors: Mapping[int, SandboxError] | None = None, always: str = "") -> None:
        self.inner, self.errors, self.always = inner, errors or {}, always
        self.name, self.isolates, self.capabilities = inner.name, inner.isolates, inner.capabilities
        self.commands = 0

    def acquire(self, spec: SandboxSpec) -> Sandbox:
        if self.always == "acquire":
            raise SandboxError("cannot start", kind="broken_acquire")
        return _Sandbox(self, self.inner.acquire(spec))

    def identify(self, image: str) -> str:
        return self.inner.identify(image)

    def reap(self) -> int:
        return self.inner.reap()

    def close(self) -> None:
        self.inner.close()


class _Sandbox:
    def __init__(self, owner: Breaking, inner: Sandbox) -> None:
        self.owner, self.inner, self.id, self.backend = owner, inner, inner.id, inner.backend

    def exec(self, *arguments: Any, **options: Any) -> ExecResult:
        self.owner.commands += 1
        if self.owner.always == "exec":
            raise SandboxError("cannot run", kind="broken_exec")
        if self.owner.commands in self.owner.errors:
            raise self.owner.errors[self.owner.commands]
        return self.inner.exec(*arguments, **options)

    def read(self, path: str, limit_bytes: int = 16 << 20) -> bytes:
        return self.inner.read(path, limit_bytes)

    def write(self, path: str, data: bytes) -> None:
        self.inner.write(path, data)

    def snapshot(self) -> str:
        return self.inner.snapshot()

    def close(self) -> None:
        self.inner.close()
