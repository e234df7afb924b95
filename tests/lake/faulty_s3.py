"""An S3 server with the faults of real ones: requests pass on to a sound server, but those that a rule meets are
refused, lose their answer, or are held back for a while."""

from __future__ import annotations

import http.client
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, NamedTuple

from tests.s3_server import CREDENTIALS

Fault = Literal["lose", "hold"] | int
"""`lose`: done, but nobody is told. `hold`: done when `release` says so. A number: refused with this status."""


class Rule(NamedTuple):
    method: str
    path: str
    fault: Fault


class FaultyS3:
    """A rule meets one request and is used up. `conditional` puts are those that must not replace a file."""

    def __init__(self, port: int) -> None:
        self.rules: list[Rule] = []
        self.met: list[tuple[Rule, int]] = []
        """Used rules, and what the sound server answered (0: it was not asked)."""
        self.held, self._release, self._lock = threading.Event(), threading.Event(), threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, port))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def environment(self) -> dict[str, str]:
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.server_port}"}

    def plan(self, method: str, path: str, fault: Fault, times: int = 1) -> None:
        with self._lock:
            self.rules += [Rule(method, path, fault)] * times

    def take(self, method: str, path: str) -> Rule | None:
        with self._lock:
            found = next((rule for rule in self.rules
                          if rule.method == method and re.search(rule.path, path)), None)
            if found:
                self.rules.remove(found)
            return found

    def hold(self) -> None:
        self.held.set()
        assert self._release.wait(60)

    def release(self) -> None:
        self._release.set()

    def stop(self) -> None:
        self._release.set()
        self._server.shutdown()
        self._server.server_close()


def _handler(faulty: FaultyS3, port: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            rule = faulty.take(self.command, self.path)
            if rule and isinstance(rule.fault, int):
                faulty.met.append((rule, 0))
                return self._answer(rule.fault, {}, _XML.get(rule.fault, b""))
            if rule and rule.fault == "hold":
                faulty.hold()
            status, headers, answer = self._ask(body)
            if rule:
                faulty.met.append((rule, status))
                self.close_connection = True
                return None  # Nobody is told.
            return self._answer(status, headers, answer)

        def _ask(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                connection.request(self.command, self.path, body, dict(self.headers))
                answer = connection.getresponse()
                return answer.status, dict(answer.getheaders()), answer.read()
            finally:
                connection.close()

        def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response_only(status)
            length = headers.pop("Content-Length", headers.pop("content-length", str(len(body))))
            for name, value in headers.items():
                if name.lower() not in ("connection", "transfer-encoding"):
                    self.send_header(name, value)
            self.send_header("Content-Length", length if self.command == "HEAD" else str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _pass

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


_XML = {
    503: b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>",
    409: b"<Error><Code>ConditionalRequestConflict</Code><Message>Try again.</Message></Error>",
    404: b"<Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message></Error>"}
