"""A root folder of several layers: an image's or the host's, what set-up commands left, places for mounts on top.

It is one sandbox's own, mounted anew for each: the shared view of the host's programs knows neither images nor layers.
"""

from __future__ import annotations

import os
from typing import Any

from sandboxes.spawner import mounts
from sandboxes.spawner.view import AGENT_FOLDER, WORKSPACE, Root, View, make_place

_FOLDERS = ("", "/proc", "/dev", "/tmp", "/etc", AGENT_FOLDER, WORKSPACE)
_RESOLVING = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs", "/etc/pki/tls/certs")
"""What programs need to find and trust others on the host's network."""


class LayeredRoot(Root):
    """`spec` has `base` and `agent` (folders of an image; empty: the host's), `layer`, `half` (a folder with `root`,
    where everything written is to be kept) and `network` (whether the sandbox has the host's)."""

    def __init__(self, folder: str, spec: dict[str, Any], view: View, user: tuple[int, int], unprivileged: bool,
                 brought: list[tuple[str, str]]) -> None:
        self.root, self.path, self.hand = f"{folder}/places", f"{folder}/root", view.hand
        programs = [] if spec["base"] else view.programs
        resolving = [(os.path.realpath(name), name) for name in _RESOLVING if spec["network"] and os.path.exists(name)]
        for name in _FOLDERS:
            os.mkdir(self.root + name)
        for source, inside in (*programs, *resolving, *brought):
            make_place(self.root + inside, os.path.isdir(source))
        if spec["network"] and not spec["base"]:
            with open(f"{self.root}/etc/nsswitch.conf", "w") as file:
                file.write("passwd: files\ngroup: files\nhosts: files dns\n")
        os.mkdir(self.path)
        lowers = [self.root, *filter(None, [spec["layer"]]), spec["base"] or view.root]
        self._mount(lowers, folder, spec["half"], user, unprivileged)
        for source, inside in (*programs, *resolving):
            self.bring(source, inside)
        self.bring(spec["agent"] or view.root + AGENT_FOLDER, AGENT_FOLDER)
        mounts.bind(f"{view.path}/dev", f"{self.path}/dev")

    def _mount(self, lowers: list[str], folder: str, half: str, user: tuple[int, int], unprivileged: bool) -> None:
        if not half:
            mounts.mount_overlay(lowers, "", "", self.path, unprivileged)
            return
        if os.path.isdir(f"{lowers[-1]}/etc/apt/apt.conf.d"):
            os.makedirs(f"{self.root}/etc/apt/apt.conf.d")
            with open(f"{self.root}/etc/apt/apt.conf.d/99headrace", "w") as file:
                file.write('APT::Sandbox::User "root";\n')  # there is no other user to become
        for below in (self.root, lowers[-1]) if not unprivileged else ():
            _give(below, user)
        # At a path of ours: theirs may hold the characters that separate options.
        os.mkdir(f"{folder}/half")
        mounts.bind(half, f"{folder}/half")
        mounts.mount_overlay(lowers, f"{folder}/half/root", f"{folder}/half/work", self.path, unprivileged)


def _give(folder: str, user: tuple[int, int]) -> None:
    """What set-up commands may write to must be their user's; of an image all is, when it is unpacked."""
    if os.stat(folder).st_uid == user[0]:
        return
    for above, folders, names in os.walk(folder):
        for name in ("", *folders, *names):
            os.chown(os.path.join(above, name), *user, follow_symlinks=False)
