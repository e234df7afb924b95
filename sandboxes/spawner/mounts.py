"""Mounts of the spawner, in mount namespaces of their own: what is mounted there is gone when the last process is.

The spawner's own namespace holds what all sandboxes share. Each sandbox's mounts are made in a further one, split off
for it: so a hundred open sandboxes do not make the next one slower, whose namespace is a copy of the spawner's.
"""

from __future__ import annotations

import ctypes
import os

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)
# A folder that nobody needs here, and that every user may pass through.
_STAGES = ("/sys", "/mnt", "/media")


def mount(source: bytes, target: str, kind: bytes | None, flags: int, options: bytes = b"") -> None:
    if _libc.mount(source, os.fsencode(target), kind, ctypes.c_ulong(flags), options or None):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


def bind(source: str, target: str) -> None:
    mount(os.fsencode(source), target, None, _BIND | _REC)


def detach(target: str) -> None:
    _libc.umount2(os.fsencode(target), _DETACH)


def enter_namespace() -> bool:
    """A private mount namespace; True when it came with a user namespace because we are not root."""
    user, group = os.geteuid(), os.getegid()
    unprivileged = user != 0
    if _libc.unshare(CLONE_NEWNS | (CLONE_NEWUSER if unprivileged else 0)):
        number = ctypes.get_errno()
        raise OSError(number, f"namespaces are refused: {os.strerror(number)}")
    if unprivileged:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    mount(b"none", "/", None, _REC | _PRIVATE)
    return unprivileged


def split_off() -> None:
    """A copy of this mount namespace, for us alone."""
    if _libc.unshare(CLONE_NEWNS):
        number = ctypes.get_errno()
        raise OSError(number, f"namespaces are refused: {os.strerror(number)}")


def current_namespace() -> int:
    return os.open("/proc/self/ns/mnt", os.O_RDONLY)


def go_to(namespace: int) -> None:
    if _libc.setns(namespace, CLONE_NEWNS):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def make_stage() -> str:
    """A tmpfs that only this namespace sees; everything of ours hangs below it."""
    stage = next(path for path in _STAGES if os.path.isdir(path))
    detach(stage)  # fewer mounts to copy and to read through for each sandbox; without root they stay, hidden
    mount(b"headrace", stage, b"tmpfs", _NOSUID | _NODEV, b"mode=0755")
    return stage


def mount_layer(target: str, size_mb: int) -> None:
    """A size-limited tmpfs: the fresh upper layer of one sandbox."""
    mount(b"headrace", target, b"tmpfs", _NOSUID | _NODEV, b"mode=0755,nr_inodes=200k,size=%dm" % size_mb)


def mount_overlay(lower: str, upper: str, work: str, target: str, unprivileged: bool) -> None:
    # Descriptors in place of paths: a path may hold the characters that separate options.
    descriptor = os.open(lower, os.O_RDONLY | os.O_DIRECTORY)
    try:
        layers = f"lowerdir=/proc/self/fd/{descriptor},upperdir={upper},workdir={work}"
        options = layers + (",userxattr" if unprivileged else ",redirect_dir=on")
        mount(b"headrace", target, b"overlay", _NOSUID | _NODEV, options.encode())
    finally:
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


def make_etc(folder: str) -> None:
    """The little that programs look up in /etc; nothing of the host but the linker's cache and alternatives."""
    os.mkdir(folder)
    texts = {
        "passwd": "root:x:0:0:root:/:/bin/sh\nsandbox:x:1000:1000:sandbox:/workspace:/bin/sh\n"
                  "nobody:x:65534:65534:nobody:/:/bin/sh\n",
        "group": "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n",
        "hosts": "127.0.0.1 localhost sandbox\n",
        "hostname": "sandbox\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    }
    for name, text in texts.items():
        with open(f"{folder}/{name}", "w") as file:
            file.write(text)
    os.symlink("/usr/share/zoneinfo/UTC", f"{folder}/localtime")
    for name in ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives"):
        copy(f"/etc/{name}", f"{folder}/{name}")


def copy(source: str, target: str) -> None:
    """A file, link or folder of such; what is not there or not readable is left out."""
    try:
        if os.path.islink(source):
            os.symlink(os.readlink(source), target)
        elif os.path.isdir(source):
            os.mkdir(target)
            for name in os.listdir(source):
                copy(f"{source}/{name}", f"{target}/{name}")
        else:
            with open(source, "rb") as original, open(target, "wb") as made:
                made.write(original.read())
    except OSError:
        pass


def bring(source: str, target: str, copied: bool) -> None:
    """Make a file or folder of the host readable at `target`: by a mount, or as a copy that everyone may read."""
    if copied:
        _copy_readable(source, target)
        return
    if os.path.isdir(source):
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_EXCL))
    bind(source, target)


def _copy_readable(source: str, target: str) -> None:
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
        return
    mode = os.stat(source).st_mode
    if os.path.isdir(source):
        os.mkdir(target)
        for name in os.listdir(source):
            _copy_readable(f"{source}/{name}", f"{target}/{name}")
    else:
        with open(source, "rb") as original, open(target, "wb") as made:
            while block := original.read(1 << 20):
                made.write(block)
    # What the owner may run, all may run.
    os.chmod(target, 0o555 if mode & 0o100 else 0o444)


def copy_agent(target: str) -> None:
    """`sh` as a file that may be executed but not read: its process can then not be traced or looked into."""
    copy(os.path.realpath("/bin/sh"), target)
    os.chmod(target, 0o111)
