"""What a container sees as its root: an image that the engine has, or the host's programs as every sandbox sees them.

For the host's programs the image is a skeleton of a few kilobytes, named by what it holds and made once; the programs
themselves are mounted read-only.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from sandboxes.docker_engine import Engine
from sandboxes.environment import PATH, SYSTEM_PATH
from sandboxes.interpreter import FOLDER, NAMES, interpreter
from sandboxes.spawner.view import _make_etc as make_etc
from schemas.errors import SandboxError

HOST_IMAGE = "headrace-host"
_SYSTEM = ("bin", "lib", "lib32", "lib64", "libx32")
# The engine puts its init into /sbin, so that is a folder of its own, whatever the host has there.
_SBIN = "sbin"
_FOLDERS = ("usr", "etc", "proc", "dev", "sys", "tmp", "workspace", "opt", FOLDER[1:], f"{FOLDER[1:]}/bin", _SBIN)
_AGENT = "headrace"


class View(NamedTuple):
    """`programs` are the host's files that are mounted: source and path inside. `path` is where commands are found."""

    image: str
    programs: list[tuple[str, str]]
    path: str


def host_view(engine: Engine) -> View:
    """The host's /usr and the interpreter that runs us."""
    unmerged = [f"/{name}" for name in _SYSTEM if os.path.isdir(f"/{name}") and not os.path.islink(f"/{name}")]
    programs = [(path, path) for path in ("/usr", *unmerged)]
    python = interpreter()
    if python.source:
        programs.append((python.source, python.target))
    data = _skeleton(python.executable)
    tag = hashlib.sha256(data).hexdigest()[:16]
    image = f"{HOST_IMAGE}:{tag}"
    if _found(engine, image) is None:
        with engine.told("the skeleton image cannot be imported", "sandbox_start"):
            engine.api.import_image_from_data(data, repository=HOST_IMAGE, tag=tag)
    return View(image, programs, PATH)


def image_view(engine: Engine, name: str) -> View:
    """An image by name. Raises SandboxError (kind `image`) where the engine has none: nothing is ever downloaded."""
    found = _found(engine, name)
    if found is None:
        raise SandboxError("the Docker engine has no such image", kind="image", value=name,
                           hint=f"get it with `docker pull {name}`")
    variables = dict(one.split("=", 1) for one in found["Config"].get("Env") or () if "=" in one)
    return View(str(found["Id"]), [], variables.get("PATH", SYSTEM_PATH))


def _found(engine: Engine, image: str) -> dict[str, Any] | None:
    with engine.told("the image cannot be looked up", "image"):
        try:
            return dict(engine.api.inspect_image(image))
        except engine.missing:
            return None


def _skeleton(python: str) -> bytes:
    """The same bytes on the same host."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in _FOLDERS:
            member = tarfile.TarInfo(name)
            member.type, member.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(member)
        links = {f"{FOLDER[1:]}/bin/{name}": python for name in NAMES}
        links |= {name: os.readlink(f"/{name}") for name in _SYSTEM if os.path.islink(f"/{name}")}
        if os.path.islink("/sbin"):
            links |= {f"{_SBIN}/{name}": f"/usr/sbin/{name}" for name in sorted(os.listdir("/usr/sbin"))}
        for name, target in links.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
        _add_etc(archive)
    return made.getvalue()


def _add_etc(archive: tarfile.TarFile) -> None:
    with tempfile.TemporaryDirectory(prefix="headrace-etc-") as folder:
        make_etc(folder)
        for path in sorted(Path(folder).rglob("*")):
            name = path.relative_to(folder)
            if name.parts[0] == _AGENT:
                continue
            member = archive.gettarinfo(path, f"etc/{name}")
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime, member.mode = 0, 0o755 if member.isdir() else 0o644
            if member.isreg():
                with path.open("rb") as file:
                    archive.addfile(member, file)
            else:
                archive.addfile(member)
