"""Getting in: the credentials for a Kafka cluster, and one look at the door before a client begins to try.

Credentials come from the environment (`HEADRACE_KAFKA_*`) or a file named there, and are never shown. A client would
knock again and again and tell in the end only that nobody answered; `knock` tries each address once and says why.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import kafka.errors
from kafka.net.compat import KafkaNetClient

from schemas.errors import ConfigError, UnavailableError

HINT = "check the address and that the broker runs; `make kafka` starts one on this machine"
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_CONNECT_S = 3.0
_REFUSALS = (kafka.errors.SaslAuthenticationFailedError, kafka.errors.UnsupportedSaslMechanismError,
             kafka.errors.IllegalSaslStateError)
# Request 17 (SaslHandshake) of version 1: a broker answers it before any login, and says whether it wants one.
_HANDSHAKE, _HANDSHAKE_VERSION, _ANSWER_BYTES = 17, 1, 10
_TLS_ALERT = 0x15
_UNKNOWN_MECHANISM, _NO_LOGIN = 33, 34
_TELLTALES = ("kafka.admin.client", "kafka.net.connection", "kafka.net.sasl", "kafka.protocol")
"""The client's loggers that write requests out, passwords included, at level debug."""


class Secret(str):
    """Text that no dump of settings shows."""

    def __repr__(self) -> str:
        return "'***'"


def addresses(setting: str) -> list[str]:
    """`kafka://host:port[,host:port]` as a list of `host:port`."""
    found = []
    for part in setting.removeprefix("kafka://").rstrip("/").split(","):
        host, _, port = part.strip().rpartition(":")
        if "@" in host:  # The value is not repeated: it may hold a password.
            raise ConfigError("the address of a broker holds no user or password", where="setting `log`",
                              hint="set HEADRACE_KAFKA_USERNAME and HEADRACE_KAFKA_PASSWORD_FILE")
        if not host or not port.isdigit() or not 0 < int(port) < 65536 or "/" in host:
            raise ConfigError("not the address of a Kafka broker", where="setting `log`", value=setting,
                              hint="kafka://host:port[,host:port]")
        found.append(f"{host}:{int(port)}")
    return found


def credentials(environment: Mapping[str, str]) -> dict[str, Any]:
    """Client settings for TLS and SASL from `HEADRACE_KAFKA_*`."""
    def given(name: str) -> str:
        return environment.get(f"HEADRACE_KAFKA_{name}", "")

    protocol = given("SECURITY_PROTOCOL") or "PLAINTEXT"
    if protocol not in _PROTOCOLS:
        raise ConfigError("unknown security protocol", where="HEADRACE_KAFKA_SECURITY_PROTOCOL", value=protocol,
                          hint=f"one of {', '.join(_PROTOCOLS)}")
    found: dict[str, Any] = {"security_protocol": protocol}
    for name, setting in {"CA_FILE": "ssl_cafile", "CERT_FILE": "ssl_certfile", "KEY_FILE": "ssl_keyfile"}.items():
        if given(name):
            if not Path(given(name)).is_file():
                raise ConfigError("no such file", where=f"HEADRACE_KAFKA_{name}", value=given(name))
            found[setting] = given(name)
    if protocol.startswith("SASL"):
        mechanism = given("SASL_MECHANISM") or "PLAIN"
        if mechanism not in _MECHANISMS:
            raise ConfigError("unknown SASL mechanism", where="HEADRACE_KAFKA_SASL_MECHANISM", value=mechanism,
                              hint=f"one of {', '.join(_MECHANISMS)}")
        found |= {"sasl_mechanism": mechanism, "sasl_plain_username": given("USERNAME"),
                  "sasl_plain_password": Secret(given("PASSWORD") or _password_file(given("PASSWORD_FILE")))}
        if not found["sasl_plain_username"] or not found["sasl_plain_password"]:
            raise ConfigError("SASL needs a user name and a password", where="environment",
                              hint="set HEADRACE_KAFKA_USERNAME and HEADRACE_KAFKA_PASSWORD or ..._PASSWORD_FILE")
    return found


def _password_file(name: str) -> str:
    if not name:
        return ""
    try:
        return Path(name).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise ConfigError("password file cannot be read", where="HEADRACE_KAFKA_PASSWORD_FILE", value=name) from None


def hush() -> None:
    """The client's log would repeat every failed attempt; what shows passwords stays silent at any level."""
    quiet = logging.getLogger("kafka")
    if quiet.level == logging.NOTSET:
        quiet.addHandler(logging.NullHandler())
        quiet.setLevel(logging.CRITICAL)
    for name in _TELLTALES:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def knock(setting: str, client: Mapping[str, Any]) -> None:
    """Is a broker there that speaks our protocol? Raises UnavailableError or ConfigError, with the reason."""
    tls = _tls(client) if client["security_protocol"] in ("SSL", "SASL_SSL") else None
    reasons = []
    deadline = time.monotonic() + 2 * _CONNECT_S
    for server in client["bootstrap_servers"]:
        host, _, port = server.rpartition(":")
        left = min(_CONNECT_S, deadline - time.monotonic())
        if left <= 0:
            break
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=left) as door:
                _greet(door, host.strip("[]"), tls, client, server)
            return
        except ssl.SSLCertVerificationError as wrong:
            raise UnavailableError(f"the certificate of the broker is not accepted ({wrong.verify_message})",
                                   where=server, hint="HEADRACE_KAFKA_CA_FILE names the authority's certificate; the "
                                   "address must be a name that the broker's certificate holds") from None
        except OSError as wrong:
            reasons.append(f"{server}: {wrong.strerror or wrong}")
    raise UnavailableError("no Kafka broker can be reached", where=setting, value="; ".join(reasons), hint=HINT)


def _tls(client: Mapping[str, Any]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=client.get("ssl_cafile"))
    if "ssl_certfile" in client:
        context.load_cert_chain(client["ssl_certfile"], client.get("ssl_keyfile"), password="")
    return context


def _greet(door: socket.socket, host: str, tls: ssl.SSLContext | None, client: Mapping[str, Any], where: str) -> None:
    """Say hello and judge the answer. OSErrors are those of the network."""
    try:
        with contextlib.ExitStack() as stack:
            if tls is not None:
                door = stack.enter_context(tls.wrap_socket(door, server_hostname=host))
            mechanism = client.get("sasl_mechanism", "PLAIN").encode()
            request = struct.pack(">hhihh", _HANDSHAKE, _HANDSHAKE_VERSION, 1, -1, len(mechanism)) + mechanism
            door.sendall(struct.pack(">i", len(request)) + request)
            answer = b""
            while len(answer) < _ANSWER_BYTES and (more := door.recv(_ANSWER_BYTES - len(answer))):
                answer += more
    except ssl.SSLCertVerificationError:
        raise
    except TimeoutError:
        raise _closed_door("listener does not answer" + (" in TLS" if tls else " as a Kafka broker does"),
                           where) from None
    except OSError as wrong:
        if tls is None:
            raise
        if isinstance(wrong, ssl.SSLError) and str(wrong.reason).endswith(("CERTIFICATE_REQUIRED", "BAD_CERTIFICATE")):
            raise UnavailableError("broker wants a certificate of the client that it knows", where=where,
                                   hint="set HEADRACE_KAFKA_CERT_FILE and HEADRACE_KAFKA_KEY_FILE") from None
        raise _closed_door(f"no TLS connection ({getattr(wrong, 'reason', None) or wrong.strerror or wrong})",
                           where) from None
    _judge(answer, client, where)


def _judge(answer: bytes, client: Mapping[str, Any], where: str) -> None:
    if answer[:1] == bytes([_TLS_ALERT]):
        raise _closed_door("broker speaks TLS at this port", where)
    if len(answer) < _ANSWER_BYTES:
        raise _closed_door("listener closed the connection before it answered", where)
    code, wants = int.from_bytes(answer[8:], "big"), client["security_protocol"].startswith("SASL")
    if wants and code == _NO_LOGIN:
        raise _closed_door("broker takes no login (SASL) at this port", where)
    if not wants and code != _NO_LOGIN:
        raise _closed_door("broker wants a login (SASL) at this port", where)
    if code == _UNKNOWN_MECHANISM:
        raise UnavailableError(f"broker does not take {client['sasl_mechanism']} logins", where=where,
                               hint=f"HEADRACE_KAFKA_SASL_MECHANISM is one of {', '.join(_MECHANISMS)}")


def _closed_door(what: str, where: str) -> UnavailableError:
    return UnavailableError(what, where=where, hint="is a Kafka broker there? HEADRACE_KAFKA_SECURITY_PROTOCOL must be "
                                                    "that of the listener")


def once_refused(made: list[Any]) -> Callable[..., Any]:
    """A maker of clients that try refused credentials once, where the client would try on in silence. Fills `made`."""

    def client(**settings: Any) -> Any:
        made.append(KafkaNetClient(**settings))
        manager = made[-1]._manager
        connect = manager.get_connection
        refusals: list[Exception] = []

        def get_connection(node_id: Any, **named: Any) -> Any:
            def failed(wrong: Exception) -> None:
                if isinstance(wrong, _REFUSALS) or _hung_up(connection, wrong):
                    refusals.append(kafka.errors.SaslAuthenticationFailedError(str(wrong)))

            if refusals:
                raise refusals[0]
            connection = connect(node_id, **named)
            connection.init_future.add_errback(failed)
            return connection

        manager.get_connection = get_connection
        return made[-1]

    return client


def _hung_up(connection: Any, wrong: Exception) -> bool:
    """In the middle of a login. The client drops a refusal that comes together with the end of the connection."""
    return (connection.config["security_protocol"].startswith("SASL") and connection.broker_version_data is not None
            and isinstance(wrong, kafka.errors.KafkaConnectionError) and "socket disconnected" in str(wrong))
