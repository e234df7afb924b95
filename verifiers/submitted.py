"""Reading what the policy handed in. What is not there, or not a file, is the policy's doing and no error of ours."""

from __future__ import annotations

import errno

from sandboxes.sandbox import Sandbox
from schemas.errors import SandboxError

_POLICYS_DOING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ELOOP,
                            errno.EFBIG, errno.ENAMETOOLONG})


class NotSubmitted(Exception):
    """The file that the task asked for is not there, not a plain file, or too large. Its text says which."""


def read_submitted(sandbox: Sandbox, path: str, limit_bytes: int) -> bytes:
    """The bytes of a file of the submitted workspace. Raises NotSubmitted; SandboxError if the sandbox broke."""
    try:
        return sandbox.read(path, limit_bytes)
    except FileNotFoundError:
        raise NotSubmitted(f"there is no {path}") from None
    except OSError as wrong:
        if wrong.errno not in _POLICYS_DOING:
            raise SandboxError(f"a submitted file cannot be read ({wrong})", where=path) from None
        raise NotSubmitted(f"{path} cannot be read as a file ({wrong.strerror})") from None
