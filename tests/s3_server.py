"""A local S3 server in a process of its own: `python -m tests.s3_server` prints its address and serves until killed.

Requests are answered one at a time. The server looks at a condition of a put and then writes, so two at once could
both pass; a real S3 decides atomically.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "very-secret", "AWS_REGION": "us-east-1"}


class S3Server:
    """One that may be stopped and come back at the same address, empty."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._port = 0
        self.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": self.endpoint}

    def start(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-m", "tests.s3_server", str(self._port)],
                                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                         cwd=Path(__file__).resolve().parent.parent)
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline())

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Connections are taken, answers do not come."""
        import signal

        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(f"{self.endpoint}/{path}", data=body, method=method,
                                         headers={"Content-Type": "application/octet-stream"})
        with urllib.request.urlopen(request) as answer:
            return bytes(answer.read())

    def make_bucket(self, name: str) -> None:
        self.ask("PUT", name)

    def check_credentials(self, on: bool) -> None:
        self.ask("POST", "moto-api/reset-auth", b"0" if on else b"inf")


def serve(port: int) -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    app, one_at_a_time = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def serial(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        with one_at_a_time:
            return list(app(environ, start_response))

    server = make_server("127.0.0.1", port, serial, threaded=True, request_handler=MotoRequestHandler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
