"""The filter for system calls where the engine's own lets through what no sandbox should have.

Engines before version 25 allow io_uring and vsocks, which no network namespace holds. There a filter of ours stands in
its place: it refuses what `sandboxes.seccomp` refuses, and what the engine's own refuses of calls that still exist.
"""

from __future__ import annotations

import json
from typing import Any

OWN_FILTER_SINCE = 25
_ENOSYS = 38
_NEW_USER_NAMESPACE = 0x10000000
_REFUSED = (
    "acct", "add_key", "bpf", "clock_adjtime", "clock_settime", "create_module", "delete_module", "fanotify_init",
    "finit_module", "fsconfig", "fsmount", "fsopen", "fspick", "get_kernel_syms", "init_module", "io_uring_enter",
    "io_uring_register", "io_uring_setup", "ioperm", "iopl", "kcmp", "kexec_file_load", "kexec_load", "keyctl",
    "lookup_dcookie", "mbind", "mount", "mount_setattr", "move_mount", "move_pages", "name_to_handle_at", "nfsservctl",
    "open_by_handle_at", "open_tree", "perf_event_open", "pivot_root", "query_module", "quotactl", "quotactl_fd",
    "reboot", "request_key", "set_mempolicy", "setns", "settimeofday", "stime", "swapoff", "swapon", "sysfs", "syslog",
    "umount", "umount2", "unshare", "uselib", "userfaultfd", "ustat", "vhangup", "vm86", "vm86old", "_sysctl")
# All but unix, IPv4, IPv6 and netlink; a family is compared as 64 bits, so no higher bit hides one.
_FAMILIES_REFUSED = (*range(3, 10), *range(11, 16))
_FIRST_UNKNOWN_FAMILY = 17


def options(version: str) -> list[str]:
    """What `security_opt` says of system calls, for an engine of this version."""
    major = version.partition(".")[0]
    if major.isdecimal() and int(major) >= OWN_FILTER_SINCE:
        return []
    return ["seccomp=" + json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [*_rules()]})]


def _rules() -> list[dict[str, Any]]:
    families = [_argument("SCMP_CMP_EQ", family) for family in _FAMILIES_REFUSED]
    families.append(_argument("SCMP_CMP_GE", _FIRST_UNKNOWN_FAMILY))
    new_user = {**_argument("SCMP_CMP_MASKED_EQ", _NEW_USER_NAMESPACE), "valueTwo": _NEW_USER_NAMESPACE}
    return [
        {"names": list(_REFUSED), "action": "SCMP_ACT_ERRNO"},
        # Its flags cannot be seen by a filter; the C library then falls back to `clone`.
        {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS},
        {"names": ["clone"], "action": "SCMP_ACT_ERRNO", "args": [new_user]},
        *({"names": ["socket"], "action": "SCMP_ACT_ERRNO", "args": [family]} for family in families)]


def _argument(comparison: str, value: int) -> dict[str, Any]:
    return {"index": 0, "op": comparison, "value": value}
