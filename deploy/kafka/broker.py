"""A real Apache Kafka broker on loopback: one node, KRaft, from Maven jars. For tests and `make kafka`.

    python deploy/kafka/broker.py --dir DIR --port PORT

Jars are downloaded once into `.kafka/libs` of the repository. The broker dies with the process that started it.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

REPOSITORY = Path(__file__).resolve().parents[2]
LIBS = REPOSITORY / ".kafka" / "libs"
POM = Path(__file__).with_name("pom.xml")
PACKAGES = "openjdk-17-jre-headless maven"
_READY_S = 60.0
_STOP_S = 10.0
_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
# PR_SET_PDEATHSIG (1): the kernel kills the broker when its starter is gone, however that ended.
_DIE_WITH_PARENT = (
    "import ctypes, os, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGKILL);"
    "os.getppid() == int(sys.argv[1]) or sys.exit(1); os.execvp(sys.argv[2], sys.argv[2:])")


class BrokerError(Exception):
    """Why no broker can be had here, and how to get one."""


def missing() -> str | None:
    """What this machine lacks, None if a broker can be started."""
    lacking = [tool for tool in ("java",) if shutil.which(tool) is None]
    if not _have_jars() and shutil.which("mvn") is None:
        lacking.append("mvn")
    return f"{' and '.join(lacking)} not found: apt-get install {PACKAGES}" if lacking else None


def libraries() -> Path:
    """The folder of jars, downloaded when absent. Several processes may ask at once."""
    LIBS.parent.mkdir(exist_ok=True)
    with (LIBS.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _have_jars():
            beside = LIBS.with_name(f"libs.{os.getpid()}")
            command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={beside}"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                shutil.rmtree(beside, ignore_errors=True)
                said = (done.stdout + done.stderr)[-2000:]
                raise BrokerError(f"Maven could not get the jars of Apache Kafka:\n{said}")
            shutil.rmtree(LIBS, ignore_errors=True)
            beside.rename(LIBS)
    return LIBS


def _have_jars() -> bool:
    return any(LIBS.glob("kafka_2.13-*.jar"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Broker:
    """A broker whose data lie in `folder`. Starting it again on the same folder and port keeps topics and records."""

    def __init__(self, folder: Path, port: int | None = None, *, listeners: Mapping[str, tuple[str, int]] | None = None,
                 properties: Mapping[str, object] | None = None, format_arguments: Sequence[str] = ()) -> None:
        """`listeners` stand beside the plain one: name -> (protocol, port). `deploy/kafka/secured.py` makes some."""
        if why := missing():
            raise BrokerError(why)
        self.folder = folder.resolve()
        self.port = port or free_port()
        self._controller_port = free_port()
        self._listeners, self._extra, self._format = listeners or {}, properties or {}, format_arguments
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log_setting(self) -> str:
        return f"kafka://{self.address}"

    def start(self) -> Broker:
        classpath = f"{libraries()}/*"
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "server.properties"
        config.write_text(self._properties(), encoding="utf-8")
        output = (self.folder / "broker.out").open("ab")
        with output:
            if not (self.folder / "data" / "meta.properties").exists():
                cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")
                arguments = ("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config),
                             *self._format)
                self._java(classpath, *arguments, output=output)
            command = ["java", *_JVM, "-cp", classpath, "kafka.Kafka", str(config)]
            self._process = subprocess.Popen(
                [sys.executable, "-c", _DIE_WITH_PARENT, str(os.getpid()), *command], stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True)
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the broker in good order, so that it can start again at once."""
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_S)
            self.kill()

    def kill(self) -> None:
        """End the broker as a crash would. Another start waits some seconds until its old session is over."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self, paused: bool = True) -> None:
        """Stop the broker in its tracks, or let it go on: it holds its connections but answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if paused else signal.SIGCONT)

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait()

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.stop()

    def _java(self, classpath: str, *arguments: str, output: object) -> None:
        done = subprocess.run(["java", *_JVM, "-cp", classpath, *arguments], stdin=subprocess.DEVNULL,
                              stdout=output, stderr=output, check=False)  # type: ignore[call-overload]
        if done.returncode:
            raise BrokerError(f"the broker's folder cannot be formatted:\n{self._tail()}")

    def _wait(self) -> None:
        """Until the broker accepts connections. It opens its listener last, when it is ready."""
        assert self._process is not None
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(0.05)
                    raise BrokerError(f"the broker ended while it started:\n{self._tail()}") from None
        raise BrokerError(f"the broker was not ready after {_READY_S:.0f} s:\n{self._tail()}")

    def _tail(self) -> str:
        return (self.folder / "broker.out").read_text(encoding="utf-8", errors="replace")[-2000:]

    def _properties(self) -> str:
        named = {"PLAINTEXT": ("PLAINTEXT", self.port), **self._listeners}
        open_to = ",".join(f"{name}://127.0.0.1:{port}" for name, (_, port) in named.items())
        protocols = ",".join(f"{name}:{protocol}" for name, (protocol, _) in named.items())
        lines = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": f"{open_to},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": open_to,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
            "log.dirs": self.folder / "data",
            "auto.create.topics.enable": "false",
            "log.retention.ms": -1,
            "offsets.topic.num.partitions": 4,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            "num.network.threads": 2,
            "num.io.threads": 2,
            **self._extra,
        }
        return "".join(f"{name}={value}\n" for name, value in lines.items())


def main() -> int:
    parser = argparse.ArgumentParser(description="Run a real Apache Kafka broker on loopback until Ctrl-C.")
    parser.add_argument("--dir", type=Path, default=REPOSITORY / ".kafka" / "broker", help="where its data lie")
    parser.add_argument("--port", type=int, default=9092)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with Broker(arguments.dir, arguments.port) as broker:
            print(f"Apache Kafka answers on {broker.address}; its data lie in {broker.folder}")
            print(f"use it with: headrace ... --log {broker.log_setting}")
            print("Ctrl-C ends it", flush=True)
            return broker.wait()
    except BrokerError as wrong:
        print(f"error[unavailable]: {wrong}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
