"""The sandbox that a task wants: what its fields mean, the same in an episode, for a verifier, and opened again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from sandboxes.sandbox import Limits, Network, SandboxSpec, Setup


class Wants(Protocol):
    """A task, as far as sandboxes care."""

    @property
    def image(self) -> str: ...
    @property
    def setup(self) -> Sequence[str]: ...
    @property
    def setup_network(self) -> Network: ...
    @property
    def network(self) -> Network: ...
    @property
    def files(self) -> Mapping[str, bytes]: ...
    @property
    def aliases(self) -> Sequence[str]: ...
    @property
    def environment(self) -> Mapping[str, str]: ...


def spec_for(task: Wants, workspace: str | None, *, readonly: Mapping[str, Path] | None = None, limits: Limits,
             owner: str, lease_s: float = 3600.0, network: Network | None = None) -> SandboxSpec:
    """`workspace` is a digest; null: the task's files, or what its set-up made of them. `network`: other than the
    task's."""
    setup = Setup(commands=task.setup, files=task.files, network=task.setup_network) if task.setup else None
    return SandboxSpec(
        image=task.image, setup=setup, network=task.network if network is None else network, workspace=workspace,
        files=task.files if workspace is None and setup is None else {}, readonly=readonly or {}, aliases=task.aliases,
        environment=task.environment, limits=limits, owner=owner, lease_s=lease_s)
