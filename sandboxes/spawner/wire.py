"""Messages between an owner and its spawner: one JSON object a packet, descriptors beside it."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

MAX_BYTES = 1 << 20
REPLY_BYTES = 1 << 15
_MAX_DESCRIPTORS = 8


def send(channel: socket.socket, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
    socket.send_fds(channel, [json.dumps(message).encode()], descriptors or [])


def receive(channel: socket.socket, most: int = MAX_BYTES) -> tuple[dict[str, Any] | None, list[int]]:
    """The next message, or None when the other end is gone. The caller owns the descriptors. `most`: room that is made
    for it; much room costs."""
    try:
        data, descriptors, _, _ = socket.recv_fds(channel, most, _MAX_DESCRIPTORS)
    except ConnectionError:
        return None, []
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return (json.loads(data) if data else None), descriptors
