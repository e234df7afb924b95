"""A Docker engine of its own for tests: Debian's `dockerd` in a temporary folder, without a network and without images.

An engine that DOCKER_HOST names is used instead, and the machine's own where we cannot start one.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from tests.conftest import require_real

_START_S = 60.0
_STANDARD = "/var/run/docker.sock"
# It ends with the tests, however these end, and its mounts with it: it forgets some.
_BOUND = ["unshare", "--mount", "setpriv", "--pdeathsig", "TERM"]


class EngineRefusedError(RuntimeError):
    """`dockerd` is installed, but the machine does not let it run."""


class DockerEngine:
    """`address` is what DOCKER_HOST says of it. Raises RuntimeError with the reason where none can run."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self.address = os.environ.get("DOCKER_HOST", "")
        if self.address:
            return
        missing = ("only root can start one" if os.geteuid() else
                   "" if shutil.which("dockerd") else "there is no `dockerd`: apt-get install docker.io")
        if missing:
            if not _answers(_STANDARD):
                raise RuntimeError(f"no engine runs, and {missing}")
            self.address = f"unix://{_STANDARD}"
            return
        self._folder = Path(tempfile.mkdtemp(prefix="hr-docker-"))
        self._start(self._folder / "docker.sock")

    @property
    def is_ours(self) -> bool:
        return self._process is not None

    def _start(self, link: Path) -> None:
        places = ["--data-root", self._folder / "data", "--exec-root", self._folder / "exec",
                  "--pidfile", self._folder / "pid", "--host", f"unix://{link}"]
        alone = ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false",
                 "--userland-proxy=false"]
        log = self._folder / "log"
        with log.open("wb") as said:
            self._process = subprocess.Popen([*_BOUND, "dockerd", *places, *alone], stdin=subprocess.DEVNULL,
                                             stdout=said, stderr=said, start_new_session=True)
        deadline = time.monotonic() + _START_S
        while not _answers(str(link)):
            if self._process.poll() is not None or time.monotonic() > deadline:
                lines = log.read_text(errors="replace").splitlines()[-5:]
                self.stop()
                raise EngineRefusedError("dockerd does not start: " + " | ".join(lines))
            time.sleep(0.05)
        self.address = f"unix://{link}"

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_START_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
        shutil.rmtree(self._folder)


def engine_here() -> DockerEngine:
    """An engine, or a skip with the reason. One that is installed and may not run, as inside many containers, is the
    machine's doing: that is a skip wherever it happens."""
    try:
        return DockerEngine()
    except EngineRefusedError as why:
        pytest.skip(f"docker is not available: {why}")
    except RuntimeError as why:
        require_real("docker", str(why))


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(5.0)
        try:
            link.connect(path)
            link.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b"200" in link.recv(64)
        except OSError:
            return False
