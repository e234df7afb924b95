"""A local S3 server in a process of its own: `python -m tests.s3_server 0` prints its port and serves until
its input ends.

Requests are answered one at a time. The server looks at a condition of a put and then writes, so two at once could
both pass; a real S3 decides atomically.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "very-secret", "AWS_REGION": "us-east-1"}


class S3Server:
    """Empty when it starts. `environment` leads to it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.s3_server", "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, cwd=Path(__file__).resolve().parent.parent)
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline())

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": self.endpoint}

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()

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
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()  # Until whoever started it is gone, however.


if __name__ == "__main__":
    serve(int(sys.argv[1]))
