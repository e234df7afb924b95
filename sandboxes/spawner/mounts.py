"""Mount and namespace calls of the spawner.

The spawner's own namespace holds what all sandboxes share. Each sandbox's mounts are made in a further one, split off
for it: so a hundred open sandboxes do not make the next one slower, whose namespace is a copy of the spawner's; and
what is mounted there is gone when its last process is.
"""

from __future__ import annotations

import ctypes
import os

RDONLY, NOSUID, NODEV, NOEXEC, _REMOUNT, _BIND, _REC, _PRIVATE, _SHARED = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18, 1 << 20
_NEWNS, _NEWUSER, _NEWPID, _DETACH = 0x00020000, 0x10000000, 0x20000000, 2
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000
_libc = ctypes.CDLL(None, use_errno=True)
# A folder that nobody needs here, and that every user may pass through.
_STAGES = ("/sys", "/mnt", "/media")


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    _check(_libc.mount(os.fsencode(source), os.fsencode(target), kind.encode() if kind else None,
                       ctypes.c_ulong(flags), os.fsencode(options) if options else None), target)


def bind(source: str, target: str) -> None:
    mount(source, target, None, _BIND | _REC)


def seal(target: str, flags: int) -> None:
    """Add flags to a mount and to all that are mounted below it."""
    attributes = (ctypes.c_uint64 * 4)(flags, 0, 0, 0)
    if _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(target), _AT_RECURSIVE, attributes, 32) == 0:
        return
    for below in _mounted_below(target):  # before Linux 5.12
        kept = os.statvfs(below).f_flag & (RDONLY | NOSUID | NODEV | NOEXEC)
        mount("none", below, None, _BIND | _REMOUNT | kept | flags)


def _mounted_below(target: str) -> list[str]:
    with open("/proc/self/mountinfo", "rb") as file:
        names = [line.split()[4].decode("unicode_escape") for line in file]
    return [name for name in names if name == target or name.startswith(target + "/")]


def detach(target: str) -> None:
    _libc.umount2(os.fsencode(target), _DETACH)


def leave_host() -> bool:
    """Our next child is process 1 of a namespace; True when a user namespace was needed for it, as we are not root."""
    user, group = os.geteuid(), os.getegid()
    unprivileged = user != 0
    _check(_libc.unshare(_NEWPID | (_NEWUSER if unprivileged else 0)), "namespaces are refused")
    if unprivileged:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    return unprivileged


def split_off() -> None:
    """A copy of this mount namespace, for us alone. What is private stays so."""
    _check(_libc.unshare(_NEWNS), "namespaces are refused")


def keep_to_ourselves() -> None:
    """No mount spreads into this namespace, or out of it."""
    mount("none", "/", None, _REC | _PRIVATE)


def spread(target: str) -> None:
    """What is mounted below `target` from now on is also seen in copies of this namespace that are made of it."""
    mount("none", target, None, _REC | _SHARED)


def current_namespace() -> int:
    return os.open("/proc/self/ns/mnt", os.O_RDONLY)


def go_to(namespace: int) -> None:
    _check(_libc.setns(namespace, _NEWNS), "namespace")


def mount_own_proc() -> None:
    """/proc as our pid namespace counts: bubblewrap looks up its child there."""
    detach("/proc")  # without root it stays, hidden
    mount("proc", "/proc", "proc", NOSUID | NODEV | NOEXEC)


def make_stage() -> str:
    """A tmpfs that only this namespace sees; everything of ours hangs below it."""
    stage = next(path for path in _STAGES if os.path.isdir(path))
    detach(stage)  # fewer mounts to copy and to read through for each sandbox; without root they stay, hidden
    mount("headrace", stage, "tmpfs", NOSUID | NODEV, "mode=0755")
    return stage


def mount_layer(target: str, size_mb: int) -> None:
    """A size-limited tmpfs: all that one sandbox may write."""
    mount("headrace", target, "tmpfs", NOSUID | NODEV, f"mode=0755,nr_inodes=200k,size={size_mb}m")


def resize_layer(target: str, size_mb: int) -> None:
    mount("headrace", target, None, NOSUID | NODEV | _REMOUNT, f"size={size_mb}m")


def mount_overlay(lowers: list[str], upper: str, work: str, target: str, unprivileged: bool,
                  index: bool = False) -> None:
    """The first of `lowers` is the uppermost. Without `upper` nothing can be written. `index`: a file of several names
    stays one when it is written to, which the kernel refuses without privilege."""
    # Descriptors in place of paths: a path may hold the characters that separate options.
    held = [os.open(lower, os.O_RDONLY | os.O_DIRECTORY) for lower in lowers]
    try:
        options = "lowerdir=" + ":".join(f"/proc/self/fd/{descriptor}" for descriptor in held)
        options += f",upperdir={upper},workdir={work}" if upper else ""
        options += ",userxattr" if unprivileged else ",redirect_dir=on" if upper else ",redirect_dir=follow"
        options += ",index=on" if index and not unprivileged else ""
        mount("headrace", target, "overlay", NOSUID | NODEV | (0 if upper else RDONLY), options)
    finally:
        for descriptor in held:
            os.close(descriptor)


def layer_keeps_marks(folder: str, unprivileged: bool) -> bool:
    """Whether overlayfs can keep its marks (extended attributes) on this file system."""
    name = "user.overlay.headrace" if unprivileged else "trusted.overlay.headrace"
    try:
        os.setxattr(folder, name, b"y")
        os.removexattr(folder, name)
    except OSError:
        return False
    return True
