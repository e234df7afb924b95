"""Opening a backend by name: unknown names, missing components and unwritable homes each get their own error."""

from __future__ import annotations

import difflib
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path

from artifacts.store import ArtifactStore, DirectoryStore
from sandboxes import BACKENDS
from sandboxes.sandbox import Backend, SandboxSpec
from schemas.errors import ConfigError, HeadraceError, SandboxError, UnavailableError

WANTED_DESCRIPTORS = 8192
"""A sandbox holds six; an episode in flight some more."""


def open_named(name: str, root: Path, artifacts: ArtifactStore) -> Backend:
    backend, root = _backend_class(name), root.absolute()
    _raise_descriptor_limit()
    try:
        opened = backend(root, artifacts)
        opened.reap()
    except OSError as wrong:
        raise ConfigError(f"sandboxes cannot be kept there ({wrong.strerror})", where=str(root),
                          hint="choose a writable --home") from None
    try:
        opened.acquire(SandboxSpec()).close()
    except SandboxError as wrong:
        opened.close()
        raise UnavailableError(f"sandbox backend `{name}` cannot run: {wrong.what}", hint=_hint(name)) from None
    return opened


def why_not(name: str) -> str | None:
    with tempfile.TemporaryDirectory(prefix="headrace-probe-") as folder:
        try:
            open_named(name, Path(folder) / "sandboxes", DirectoryStore(Path(folder) / "artifacts")).close()
        except HeadraceError as wrong:
            return str(wrong)
    return None


def _backend_class(name: str) -> Callable[[Path, ArtifactStore], Backend]:
    if name == "bubblewrap":
        from sandboxes.bubblewrap import BubblewrapBackend

        return BubblewrapBackend
    if name == "docker":
        from sandboxes.docker_backend import DockerBackend

        return DockerBackend
    if name == "process":
        from sandboxes.process import ProcessBackend

        return ProcessBackend
    close = difflib.get_close_matches(name, BACKENDS, n=1, cutoff=0.5)
    *first, last = (f"`{one}`" for one in BACKENDS)
    raise ConfigError("unknown sandbox backend", where="sandbox_backend", value=name,
                      hint=f"did you mean `{close[0]}`?" if close else f"there are {', '.join(first)} and {last}")


def _hint(name: str) -> str:
    if name == "docker":
        from sandboxes.docker_engine import HINT
    else:
        from sandboxes.helper import HINT
    return HINT


def _raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, WANTED_DESCRIPTORS)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
