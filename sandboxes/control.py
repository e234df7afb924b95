"""The owner's end of a stream to a process inside: lines go in, answers come out, neither waits for ever."""

from __future__ import annotations

import contextlib
import os
import select
import time

ANSWER_BYTES = 1 << 20
"""More than this is no answer of ours: the rest is dropped."""


class Control:
    """`answer` is what has come since `forget`. Owns the descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.answer = b""
        os.set_blocking(descriptor, False)

    def forget(self) -> None:
        """Also what has come unasked: it answers nothing that will be said."""
        with contextlib.suppress(OSError):
            while os.read(self.descriptor, 1 << 16):
                pass
        self.answer = b""

    def receive(self) -> bool:
        """Take what is there now; False at the end of the stream."""
        try:
            data = os.read(self.descriptor, 1 << 16)
        except BlockingIOError:
            return True
        except ConnectionError:
            return False
        if len(self.answer) < ANSWER_BYTES:
            self.answer += data
        else:
            self.answer = self.answer[:ANSWER_BYTES - 1] + data[-1:]
        return bool(data)

    def send(self, data: bytes, deadline: float) -> bool:
        """False when the other end is gone. Not read within the deadline: the caller will see the time-out."""
        view = memoryview(data)
        writable = None
        while view:
            try:
                view = view[os.write(self.descriptor, view):]
            except BlockingIOError:
                if writable is None:
                    writable = select.poll()
                    writable.register(self.descriptor, select.POLLOUT)
                if not writable.poll(max(0.0, deadline - time.monotonic()) * 1000):
                    return True
            except OSError:
                return False
        return True

    def close(self) -> None:
        os.close(self.descriptor)
