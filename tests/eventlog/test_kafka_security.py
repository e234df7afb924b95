"""Kafka as it is secured in practice: SASL and TLS with a private CA, against a real broker that asks for them."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventlog import open_log
from eventlog.kafka_access import addresses, credentials
from schemas.errors import ConfigError, UnavailableError
from schemas.settings import Settings
from schemas.topics import TASKS
from tests.conftest import REPOSITORY
from tests.eventlog.conftest import broker_module, start_broker
from tests.eventlog.tools import event, read

USER, PASSWORD, WRONG = "alice", "correct-horse-battery", "wrong-horse-battery"
SOON_S = 8.0


@pytest.fixture(scope="module")
def secured_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    folder = tmp_path_factory.mktemp("secured")
    access = broker_module("secured").secured(folder / "keys", {USER: PASSWORD}, broker_module().free_port)
    running = start_broker(folder / "broker", listeners=access.listeners, properties=access.properties,
                           format_arguments=access.format_arguments)
    running.access = access
    yield running
    running.stop()


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("home"))


Enter = Callable[..., Settings]


@pytest.fixture
def enter(secured_broker, home: str, monkeypatch: pytest.MonkeyPatch) -> Enter:
    """Settings and environment for a listener; `variables` are those of `HEADRACE_KAFKA_*`."""

    def enter_by(listener: str, host: str = "127.0.0.1", **variables: object) -> Settings:
        given = {"SECURITY_PROTOCOL": listener, **variables}
        if "SSL" in str(given["SECURITY_PROTOCOL"]):
            given = {"CA_FILE": secured_broker.access.authority, **given}
        if "SASL" in str(given["SECURITY_PROTOCOL"]):
            given = {"USERNAME": USER, "PASSWORD": PASSWORD, **given}
        for name, value in given.items():
            monkeypatch.setenv(f"HEADRACE_KAFKA_{name}", str(value))
        ports = {"PLAINTEXT": secured_broker.port, **{name: port for name, (_, port) in
                                                      secured_broker.access.listeners.items()}}
        return Settings(home=home, log=f"kafka://{host}:{ports[listener]}")

    return enter_by


@pytest.mark.parametrize(("listener", "mechanism"), [
    ("SSL", ""), ("SASL_PLAINTEXT", "PLAIN"), ("SASL_SSL", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-256"),
    ("SASL_SSL", "SCRAM-SHA-512")])
def test_events_go_in_and_out_by_every_way_in(enter: Enter, listener: str, mechanism: str,
                                              caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("kafka").setLevel(logging.DEBUG)
    try:
        with caplog.at_level(logging.DEBUG):
            log = open_log(enter(listener, SASL_MECHANISM=mechanism))
            sent = event("a")
            position, = log.append(TASKS, [sent]).result(30)
            reader = log.subscribe([TASKS], "readers", start={(TASKS, 0): position.offset}, member="m")
            assert read(reader, 1)[0].event == sent
            log.close()
    finally:
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
    assert "kafka" in caplog.text and PASSWORD not in caplog.text


def test_password_from_a_file_opens_the_log_too(enter: Enter, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(PASSWORD + "\n")
    log = open_log(enter("SASL_SSL", PASSWORD="", PASSWORD_FILE=tmp_path / "secret"))
    assert log.append(TASKS, [event("a")]).result(30)
    log.close()


def test_client_with_a_certificate_is_let_in_and_one_without_is_told(enter: Enter, secured_broker) -> None:
    settings = enter("MTLS", SECURITY_PROTOCOL="SSL")
    with pytest.raises(UnavailableError) as caught:
        open_log(settings)
    assert "certificate" in caught.value.what and "CERT_FILE" in caught.value.hint
    access = secured_broker.access
    log = open_log(enter("MTLS", SECURITY_PROTOCOL="SSL", CERT_FILE=access.client_certificate,
                         KEY_FILE=access.client_key))
    assert log.append(TASKS, [event("a")]).result(30)
    log.close()


class Gate:
    """Passes connections on to a port and counts them."""

    def __init__(self, port: int) -> None:
        self.count, self._port = 0, port
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()

    def _accept(self) -> None:
        while True:
            try:
                inside, _ = self._door.accept()
            except OSError:
                return
            self.count += 1
            outside = socket.create_connection(("127.0.0.1", self._port))
            for one, other in ((inside, outside), (outside, inside)):
                threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    @staticmethod
    def _pump(one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(65536):
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        finally:
            one.close()


def failure(settings: Settings) -> tuple[UnavailableError, int]:
    """How opening fails: soon, with few connections, without much work, and without the password."""
    gate = Gate(int(settings.log.rpartition(":")[2]))
    host = settings.log.removeprefix("kafka://").rpartition(":")[0]
    threads, begun, worked = threading.active_count(), time.monotonic(), time.process_time()
    try:
        with pytest.raises(UnavailableError) as caught:
            open_log(Settings(home=settings.home, log=f"kafka://{host}:{gate.port}"))
    finally:
        gate.close()
    assert time.monotonic() - begun < SOON_S and time.process_time() - worked < 2
    assert caught.value.hint and caught.value.exit_code == 2
    for said in (caught.value.paragraph(), repr(caught.value)):
        assert PASSWORD not in said and WRONG not in said
    assert threading.active_count() <= threads + 4  # Those of the gate.
    assert not list(Path(settings.home).iterdir())
    return caught.value, gate.count


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("wrong", [{"PASSWORD": WRONG}, {"USERNAME": "mallory"}])
def test_wrong_credentials_are_tried_once(enter: Enter, mechanism: str, wrong: dict[str, str],
                                          caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        told, connections = failure(enter("SASL_SSL", SASL_MECHANISM=mechanism, **wrong))
    assert "refused the credentials" in told.what and "HEADRACE_KAFKA_" in told.hint
    assert connections == 2  # A look at the door, and one attempt.
    assert WRONG not in caplog.text and PASSWORD not in caplog.text and capfd.readouterr() == ("", "")


def test_unknown_authority_is_told_with_the_variable_that_names_it(enter: Enter, tmp_path: Path) -> None:
    module = broker_module("secured")
    (tmp_path / "other.pem").write_bytes(module._pem(module.issue("another authority")[1]))
    told, connections = failure(enter("SASL_SSL", CA_FILE=tmp_path / "other.pem"))
    assert "certificate" in told.what and "HEADRACE_KAFKA_CA_FILE" in told.hint and connections == 1


def test_host_that_the_certificate_does_not_name_is_told(enter: Enter) -> None:
    told, connections = failure(enter("SSL", host="localhost"))
    assert "localhost" in told.what and "address must be a name" in told.hint and connections == 1


@pytest.mark.parametrize(("listener", "protocol", "words"), [
    ("PLAINTEXT", "SSL", "TLS"), ("SASL_PLAINTEXT", "SASL_SSL", "TLS"), ("SSL", "PLAINTEXT", "TLS"),
    ("SASL_SSL", "SASL_PLAINTEXT", "TLS"), ("SASL_PLAINTEXT", "PLAINTEXT", "login"),
    ("PLAINTEXT", "SASL_PLAINTEXT", "login")])
def test_the_wrong_protocol_for_a_port_is_told(enter: Enter, listener: str, protocol: str, words: str) -> None:
    told, connections = failure(enter(listener, SECURITY_PROTOCOL=protocol))
    assert words in told.paragraph() and "SECURITY_PROTOCOL" in told.hint and connections == 1


def test_credentials_that_make_no_sense_are_told_before_anyone_is_asked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        addresses(f"kafka://{USER}:{PASSWORD}@host:9092")
    assert PASSWORD not in caught.value.paragraph()
    for wrong in ({"SASL_MECHANISM": "SCRAM"}, {"CERT_FILE": str(tmp_path / "none")},
                  {"PASSWORD": "", "PASSWORD_FILE": str(tmp_path)}):
        given = {"SECURITY_PROTOCOL": "SASL_SSL", "USERNAME": USER, "PASSWORD": PASSWORD, **wrong}
        with pytest.raises(ConfigError) as caught:
            credentials({f"HEADRACE_KAFKA_{name}": value for name, value in given.items()})
        assert next(iter(wrong)) in caught.value.paragraph() or "PASSWORD_FILE" in caught.value.paragraph()
        assert PASSWORD not in caught.value.paragraph()


def test_no_command_shows_the_password(enter: Enter, home: str) -> None:
    settings = enter("SASL_SSL", SASL_MECHANISM="SCRAM-SHA-512")
    for command in (["config", "show"], ["doctor"], ["log", "create"], ["log", "describe"]):
        done = subprocess.run([sys.executable, "-m", "headrace", *command, "--home", home, "--log", settings.log],
                              cwd=REPOSITORY, capture_output=True, text=True, check=False)
        assert done.stdout and PASSWORD not in done.stdout + done.stderr, command
    log = open_log(settings)
    shown = f"{log!r} {vars(log)!r} {log._cluster.client!r} {log._appender!r} {log.subscribe([TASKS])!r}"  # type: ignore[attr-defined]
    log.close()
    assert PASSWORD not in shown
    assert PASSWORD not in "".join(path.read_text(errors="replace") for path in Path(home).rglob("*") if path.is_file())
    assert json.loads((Path(home) / "kafka.json").read_text()).keys() == {"cluster", "topics", "partitions", "owner"}
