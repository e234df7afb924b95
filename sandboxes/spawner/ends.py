"""The streams between an owner and an agent: one for commands, one for each kind of session, two pipes, a file."""

from __future__ import annotations

import os
import socket

SESSIONS = (8, 9)
"""Where the agent finds its ends of the streams for sessions: a shell, a Python."""


class Ends:
    """`ours`: commands, output, errors, input, sessions. `theirs`: descriptors, and the number the agent finds each at.

    Its standard output is not among them: nothing reads it.
    """

    def __init__(self) -> None:
        pairs = [socket.socketpair() for _ in (0, *SESSIONS)]
        (out, out_end), (error, error_end) = os.pipe(), os.pipe()
        stdin = os.memfd_create("stdin")
        # Commands open these again by /proc/self/fd; they stay ours, so that no command can take the right away.
        for descriptor, mode in ((out_end, 0o666), (error_end, 0o666), (stdin, 0o444)):
            os.fchmod(descriptor, mode)
        (control, *sessions), (agent, *others) = zip(*((one.detach(), two.detach()) for one, two in pairs), strict=True)
        self.ours = [control, out, error, stdin, *sessions]
        self.theirs = [(agent, 0), (error_end, 2), (out_end, 3), (error_end, 4), (stdin, 5),
                       *zip(others, SESSIONS, strict=True)]

    def handed_over(self) -> None:
        """The agent has its ends: close them here."""
        for descriptor in {held for held, _ in self.theirs} - {*self.ours}:
            os.close(descriptor)
