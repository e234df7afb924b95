"""A system-call filter for sandboxes: what only widens the kernel's attack surface is refused with EPERM.

Namespaces, mounts, kernel modules, keys, BPF, io_uring and the like; sockets of families that no network namespace
holds (a vsock reaches the host of a virtual machine); resource limits of other processes, as the agent is of the same
user: without processor time or forks it would die, and the sandbox would seem to have broken. `clone3` says ENOSYS,
because its flags cannot be seen by a filter, and the C library then falls back to `clone`, whose flags can. Foreign
architectures say ENOSYS.
"""

from __future__ import annotations

import errno
import platform
import struct

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT, _THIRD_ARGUMENT_AT = 0, 4, 16, 32
_X32_BIT = 0x40000000
_NEW_USER_NAMESPACE = 0x10000000
# Numbers that are the same on every architecture: io_uring (425-427), the new mount calls (428-433), mount_setattr,
# open_tree_attr.
_EVERYWHERE = (425, 426, 427, 428, 429, 430, 431, 432, 433, 442, 467)
_CLONE3 = 435
# mount umount2 pivot_root swapon swapoff reboot kexec_load kexec_file_load init_module finit_module delete_module bpf
# perf_event_open userfaultfd keyctl add_key request_key setns unshare open_by_handle_at quotactl acct syslog, and
# modify_ldt where there is one
_X86_64 = (165, 166, 155, 167, 168, 169, 246, 320, 175, 313, 176, 321, 298, 323, 250, 248, 249, 308, 272, 304, 179, 163,
           103, 154)
_AARCH64 = (40, 39, 41, 224, 225, 142, 104, 294, 105, 273, 106, 280, 241, 282, 219, 217, 218, 268, 97, 265, 60, 89, 116)
_MACHINES = {"x86_64": (0xC000003E, 56, 41, 302, _X86_64), "aarch64": (0xC00000B7, 220, 198, 261, _AARCH64)}
"""The architecture, its numbers of clone, socket and prlimit64, what is refused."""
_CONFINED_FAMILIES = (1, 2, 10, 16)  # unix, IPv4, IPv6, netlink


# chown fchown lchown fchownat
_OWNING = {"x86_64": (92, 93, 94, 260), "aarch64": (55, 54)}


def seccomp_filter(machine: str | None = None, one_owner: bool = False) -> bytes:
    """The filter as the kernel reads it; empty on a machine whose call numbers we do not know.

    `one_owner`: giving files to others succeeds and does nothing, for installers: there is nobody else in a sandbox.
    """
    machine = machine or platform.machine()
    known = _MACHINES.get(machine)
    if known is None:
        return b""
    architecture, clone, socket, prlimit, refused = known
    numbers = (*refused, *_EVERYWHERE)
    # The tail: allow, refuse (EPERM), unknown (ENOSYS); jumps count the instructions in between.
    tail = [_step(_RETURN, _ALLOW), _step(_RETURN, _ERRNO | errno.EPERM), _step(_RETURN, _ERRNO | errno.ENOSYS),
            _step(_RETURN, _ERRNO)]
    body = [(_LOAD, _ARCHITECTURE_AT, None, None), (_JUMP_EQUAL, architecture, None, "unknown"),
            (_LOAD, _NUMBER_AT, None, None), (_JUMP_AT_LEAST, _X32_BIT, "unknown", None),
            (_JUMP_EQUAL, _CLONE3, "unknown", None)]
    body += [(_JUMP_EQUAL, number, "done", None) for number in (_OWNING[machine] if one_owner else ())]
    body += [(_JUMP_EQUAL, number, "refuse", None) for number in numbers]
    body += [(_JUMP_EQUAL, clone, None, "socket"), (_LOAD, _FIRST_ARGUMENT_AT, None, None),
             (_JUMP_SET, _NEW_USER_NAMESPACE, "refuse", "allow")]
    place = {"socket": len(body)}
    body += [(_JUMP_EQUAL, socket, None, "prlimit"), (_LOAD, _FIRST_ARGUMENT_AT, None, None)]
    body += [(_JUMP_EQUAL, family, "allow", None) for family in _CONFINED_FAMILIES[:-1]]
    body += [(_JUMP_EQUAL, _CONFINED_FAMILIES[-1], "allow", "refuse")]
    place["prlimit"] = len(body)
    body += [(_JUMP_EQUAL, prlimit, None, "allow"), (_LOAD, _FIRST_ARGUMENT_AT, None, None),
             (_JUMP_EQUAL, 0, "allow", None)]  # of the caller itself
    for half in (0, 4):  # or nothing is to be set: the new limit is at address 0
        body += [(_LOAD, _THIRD_ARGUMENT_AT + half, None, None), (_JUMP_EQUAL, 0, None, "refuse")]
    place |= {"allow": len(body), "refuse": len(body) + 1, "unknown": len(body) + 2, "done": len(body) + 3}

    def distance(target: str | None, at: int) -> int:
        return place[target] - at - 1 if target else 0

    steps = [_step(code, value, distance(yes, at), distance(no, at)) for at, (code, value, yes, no) in enumerate(body)]
    return b"".join(steps + tail)


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)
