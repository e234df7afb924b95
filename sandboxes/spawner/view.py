"""The root folder that sandboxes see, put together once: bubblewrap then binds it as a whole.

`root` is a plain folder where names can be added; `view` is a read-only mount of it, on which all else is mounted.
"""

from __future__ import annotations

import os
from typing import Any

from sandboxes.spawner import mounts

WORKSPACE = "/workspace"
PYTHON = "/opt/python"
AGENT_FOLDER = "/etc/headrace"
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
                 "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx"}
_SEALED = mounts.RDONLY | mounts.NOSUID | mounts.NODEV


class Root:
    """`path` is what becomes `/`; names can be added in the folder `root`, and show there. `hand` holds a mount for a
    moment."""

    root: str
    path: str
    hand: str

    def bring(self, source: str, inside: str, flags: int = _SEALED) -> None:
        """Mount a file or folder of the host; its place is made if need be. Wherever it spreads it has its flags."""
        is_folder = os.path.isdir(source)
        make_place(self.root + inside, is_folder)
        hand = f"{self.hand}/{'folder' if is_folder else 'file'}"
        mounts.bind(source, hand)
        try:
            mounts.seal(hand, flags)
            mounts.bind(hand, self.path + inside)
        finally:
            mounts.detach(hand)

    def furnish(self, layer: str) -> None:
        """What is one sandbox's own, whatever is asked of it: temporary folders and terminals."""
        mounts.bind(f"{layer}/tmp", f"{self.path}/tmp")
        mounts.bind(f"{layer}/shm", f"{self.path}/dev/shm")
        mounts.mount("devpts", f"{self.path}/dev/pts", "devpts", mounts.NOSUID | mounts.NOEXEC,
                     "newinstance,ptmxmode=0666,mode=0620")


def make_place(path: str, is_folder: bool) -> None:
    if os.path.lexists(path):
        return
    os.makedirs(path if is_folder else os.path.dirname(path), exist_ok=True)
    if not is_folder:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))


class View(Root):
    """The host's programs. `programs` are what of the host is mounted: source and path inside."""

    def __init__(self, stage: str, setup: dict[str, Any]) -> None:
        self.root, self.path, self.hand = f"{stage}/root", f"{stage}/view", f"{stage}/hand"
        os.makedirs(f"{self.hand}/folder")
        make_place(f"{self.hand}/file", False)
        self.programs: list[tuple[str, str]] = []
        for name in ("", "/etc", "/proc", "/dev", "/dev/shm", "/dev/pts", "/tmp", WORKSPACE, "/opt", PYTHON):
            os.mkdir(self.root + name)
        os.mkdir(self.path)
        _make_etc(f"{self.root}/etc")
        source, target, executable = setup["python"]
        os.mkdir(f"{self.root}{PYTHON}/bin")
        for name in setup["python_names"]:
            os.symlink(executable, f"{self.root}{PYTHON}/bin/{name}")
        for name, text in _DEVICE_LINKS.items():
            os.symlink(text, f"{self.root}/dev/{name}")
        mounts.bind(self.root, self.path)
        mounts.seal(self.path, _SEALED)
        self._bring_programs("/usr", "/usr")
        for name in _SYSTEM:
            if os.path.islink(f"/{name}"):
                os.symlink(os.readlink(f"/{name}"), f"{self.root}/{name}")
            elif os.path.isdir(f"/{name}"):
                self._bring_programs(f"/{name}", f"/{name}")
        if source:
            self._bring_programs(source, target)
        for name in _DEVICES:
            self.bring(f"/dev/{name}", f"/dev/{name}", mounts.NOSUID)

    def _bring_programs(self, source: str, inside: str) -> None:
        self.bring(source, inside)
        self.programs.append((source, inside))


def _make_etc(folder: str) -> None:
    """The little that programs look up in /etc; nothing of the host but the linker's cache and alternatives."""
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
        _copy(f"/etc/{name}", f"{folder}/{name}")
    # An `sh` that may be executed but not read: its process can then not be traced or looked into.
    os.mkdir(f"{folder}/headrace")
    _copy(os.path.realpath("/bin/sh"), f"{folder}/headrace/sh")
    os.chmod(f"{folder}/headrace/sh", 0o111)


def _touch(path: str) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC))


def _copy(source: str, target: str) -> None:
    """A file, link or folder of such; what is not there or not readable is left out."""
    try:
        if os.path.islink(source):
            os.symlink(os.readlink(source), target)
        elif os.path.isdir(source):
            os.mkdir(target)
            for name in os.listdir(source):
                _copy(f"{source}/{name}", f"{target}/{name}")
        else:
            with open(source, "rb") as original, open(target, "wb") as made:
                made.write(original.read())
    except OSError:
        pass


def copy_readable(source: str, target: str) -> None:
    """A copy that everyone may read, of what only we may."""
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
        return
    mode = os.stat(source).st_mode
    if os.path.isdir(source):
        os.mkdir(target)
        for name in os.listdir(source):
            copy_readable(f"{source}/{name}", f"{target}/{name}")
    else:
        with open(source, "rb") as original, open(target, "wb") as made:
            while block := original.read(1 << 20):
                made.write(block)
    # What the owner may run, all may run.
    os.chmod(target, 0o555 if mode & 0o100 else 0o444)
