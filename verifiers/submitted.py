"""Reading what the policy handed in. What is not there, or not a file, is the policy's doing and no error of ours."""

from __future__ import annotations

from sandboxes.sandbox import Sandbox


class NotSubmitted(Exception):
    """The file that the task asked for is not there, not a plain file, or too large. Its text says which."""


def read_submitted(sandbox: Sandbox, path: str, limit_bytes: int) -> bytes:
    """The bytes of a file of the submitted workspace. Raises NotSubmitted; SandboxError if the sandbox broke."""
    try:
        data = sandbox.read(path, limit_bytes + 1)
    except FileNotFoundError:
        raise NotSubmitted(f"there is no {path}") from None
    except OSError as wrong:
        raise NotSubmitted(f"{path} is not a readable file ({wrong.strerror or type(wrong).__name__})") from None
    if len(data) > limit_bytes:
        raise NotSubmitted(f"{path} is larger than {limit_bytes} bytes")
    return data
