"""The Docker engine of this machine: the few calls that sandboxes need, and its words in our errors.

Everything goes through the `docker` package. A connection that the engine hands over (attach, exec) becomes a `Wire`.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sandboxes.docker_wire import Wire
from schemas.errors import SandboxError, UnavailableError

HINT = ("install an engine with `apt-get install docker.io` and start it (`DOCKER_HOST=unix://PATH` names another "
        "socket), or choose `--sandbox bubblewrap`")
_CALL_S = 60.0
_NO_CONTENT = (404, 409)


class Ended(NamedTuple):
    """How a command ended, as the engine saw it. `started` is False where none of it ever ran."""

    exit_code: int
    started: bool


class Engine:
    """Raises UnavailableError where no engine answers. Thread-safe."""

    def __init__(self) -> None:
        try:
            import docker
            import docker.errors
            import requests
        except ImportError:
            raise unavailable("the Python package `docker` is missing", "pip install 'headrace[docker]'") from None
        self._failures = (docker.errors.DockerException, requests.exceptions.RequestException, OSError)
        self.api_error, self.missing = docker.errors.APIError, docker.errors.NotFound
        try:
            self.api = docker.APIClient(version="auto", timeout=_CALL_S, **docker.utils.kwargs_from_env())
            # The package keeps a connection for each address that it asked, and hardly asks any twice.
            self.api.headers["Connection"] = "close"
            self.info: dict[str, Any] = self.api.info()
        except self._failures as wrong:
            raise unavailable(f"no engine answers ({_words(wrong)})") from None
        if any("rootless" in option for option in self.info.get("SecurityOptions") or ()):
            self.close()
            raise unavailable("a rootless engine gives its users other numbers than this machine does")

    def close(self) -> None:
        self.api.close()

    @contextlib.contextmanager
    def told(self, what: str, kind: str = "sandbox_broken") -> Iterator[None]:
        """What the engine says against a call becomes a SandboxError."""
        try:
            yield
        except self._failures as wrong:
            raise SandboxError(f"{what}: {_words(wrong)}", kind=kind) from None

    def create(self, name: str, image: str, command: Sequence[str], environment: Mapping[str, str],
               labels: Mapping[str, str], **host: Any) -> str:
        """A container that has not started; its id."""
        config = self.api.create_host_config(**host)
        made = self.api.create_container(
            image, entrypoint=list(command), command=[], name=name, hostname="sandbox", user="0:0", stdin_open=True,
            environment=[f"{key}={value}" for key, value in environment.items()], working_dir="/workspace",
            labels=dict(labels), host_config=config, healthcheck={"test": ["NONE"]})
        return str(made["Id"])

    def attach(self, container: str) -> Wire:
        """Its first process's streams, from its start on."""
        streams = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        return Wire(_taken(self.api.attach_socket(container, params=streams)))

    def start(self, container: str) -> int:
        """Start it; the process id of its first process as this machine counts, 0 if that has ended."""
        self.api.start(container)
        try:
            return int(self.api.inspect_container(container)["State"]["Pid"])
        except self.missing:
            return 0

    def exec(self, container: str, argv: Sequence[str], user: str, environment: Mapping[str, str]) -> tuple[str, Wire]:
        """Start a command: its id, and its streams."""
        made = self.api.exec_create(container, list(argv), user=user, stdin=True,
                                    environment=[f"{key}={value}" for key, value in environment.items()])
        name = str(made["Id"])
        return name, Wire(_taken(self.api.exec_start(name, socket=True)))

    def ended(self, name: str) -> Ended | None:
        """How a command ended; None while it runs."""
        found = self.api.exec_inspect(name)
        if found["Running"] or (found["ExitCode"] is None):
            return None
        return Ended(int(found["ExitCode"]), bool(found["Pid"]))

    def remove(self, container: str, volumes: Sequence[str] = ()) -> None:
        """Kill it and wait until it, its anonymous volumes and those named are gone. It may be going already."""
        try:
            self.api.remove_container(container, v=True, force=True)
        except self.api_error as wrong:
            if wrong.status_code not in _NO_CONTENT:
                raise
        with contextlib.suppress(self.api_error):
            self.api.wait(container, condition="removed")
        for volume in volumes:
            with contextlib.suppress(self.api_error):
                self.api.remove_volume(volume)


def unavailable(why: str, hint: str = HINT) -> UnavailableError:
    return UnavailableError(f"sandbox backend `docker` cannot run: {why}", hint=hint)


def _taken(opened: Any) -> socket.socket:
    """The socket of a response, ours alone from now on."""
    theirs = getattr(opened, "_sock", opened)
    ours: socket.socket = theirs.dup()
    opened.close()
    theirs.close()
    return ours


def _words(wrong: Exception) -> str:
    text = getattr(wrong, "explanation", None) or str(wrong)
    return str(text).strip().splitlines()[0] if str(text).strip() else type(wrong).__name__
