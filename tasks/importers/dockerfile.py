"""What of a task's Dockerfile can be had without building it: WORKDIR, ENV, ARG's defaults, and COPY of the context's
files; RUN as set-up commands without root, without a network and without installers, each of which may fail. What would
change the image and is not done becomes a note.
"""

from __future__ import annotations

import base64
import posixpath
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from schemas.errors import TaskError
from tasks.importers.dockerfile_lines import Line, lines
from tasks.importers.reading import read_text

HINT = "the task's environment/Dockerfile"
OUTSIDE_BYTES = 256 << 10
"""Of a file that is put beside the working directory."""
_HARMLESS = ("FROM", "LABEL", "CMD", "ENTRYPOINT", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "MAINTAINER", "USER",
             "VOLUME")
WORKSPACE = "/workspace"
"""Where sandboxes have it: a task's own working directory may lie there, and elsewhere it is seen at that place too."""
_TAKEN = ("/tmp", "/proc", "/dev", "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/tests",
          "/logs")
_HELD = (*(taken for taken in _TAKEN if taken != "/etc"), WORKSPACE, "/solution")
"""Where nothing can be put before an episode, or must not."""
INSTALLERS = ("apt-get", "apt", "apt-key", "add-apt-repository", "apk", "dnf", "yum", "pip", "pip3", "conda", "npm",
              "chown", "useradd", "adduser", "groupadd", "usermod", "update-alternatives", "locale-gen")
"""Done by others, or for root: in set-up they do nothing, so that what follows them is done."""
BIN = "/tmp/headrace-setup"
_NAMES = re.compile(r"\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+))")
_NO_WORK = re.compile(rf"(?:sudo\s+)?(?:\w+=\S*\s+)*(?:(?:{'|'.join(map(re.escape, INSTALLERS))}|python3? -m pip)\b.*"
                      r"|rm -rf? /var/(?:lib/apt|cache)\S*.*|true|:|)", re.DOTALL)


class Built:
    def __init__(self, workdir: str, hidden: Sequence[str]) -> None:
        self.workdir, self.hidden, self.folder = workdir, hidden, Path()
        self.environment: dict[str, str] = {}
        self.notes: list[str] = []
        self.files: dict[str, bytes] = {}
        """By absolute path."""
        self.commands: list[str] = []
        self.arguments: dict[str, str] = {}
        self.shell = "sh"

    def files_of(self, workdir: str) -> dict[str, bytes]:
        """Files of the workspace by relative path. Raises TaskError where the working directory cannot be one."""
        if workdir == "/" or workdir != posixpath.normpath(workdir) or not workdir.startswith("/") or any(
                workdir == taken or workdir.startswith(f"{taken}/") for taken in _TAKEN):
            raise TaskError("the working directory cannot be the workspace", where="environment.workdir", value=workdir,
                            hint="a folder of its own, for example /app")
        prefix = root_of(workdir) + "/"
        return {path[len(prefix):]: data for path, data in self.files.items() if path.startswith(prefix)}

    def setup_of(self, workdir: str) -> list[str]:
        """Commands that put files beside the working directory, and what RUN says."""
        put = []
        for path, data in self.files.items():
            if path.startswith(root_of(workdir) + "/"):
                continue
            if len(data) > OUTSIDE_BYTES or any(path == held or path.startswith(f"{held}/") for held in _HELD):
                self.notes.append(f"{path} is not there")
                continue
            where, text = shlex.quote(path), base64.b64encode(data).decode()
            parent = shlex.quote(posixpath.dirname(path))
            put.append(f"mkdir -p {parent} && printf %s {text} | base64 -d >{where} || true")
        return [*put, *([shims(), *self.commands] if self.commands else [])]


def root_of(workdir: str) -> str:
    """The folder that the workspace is: the working directory, or the sandbox's own place where that lies in it."""
    return WORKSPACE if f"{workdir}/".startswith(f"{WORKSPACE}/") else workdir.rstrip("/")


def aliases_of(workdir: str) -> list[str]:
    return [] if root_of(workdir) == WORKSPACE else [workdir]


def shims() -> str:
    """Makes installers in BIN that do nothing."""
    names = " ".join(INSTALLERS)
    return (f"mkdir -p {BIN} && cd {BIN} && for name in {names}; do printf '#!/bin/sh\\nexit 0\\n' >$name; done; "
            "printf '#!/bin/sh\\nexec \"$@\"\\n' >sudo; chmod +x *")


def read(folder: Path, default: str, hidden: Sequence[str] = ()) -> Built:
    """`hidden`: names of the folder that must not be copied with it, as they are not the policy's to see."""
    built = Built(default, (*hidden, "Dockerfile"))
    built.folder = folder.resolve()
    path = folder / "Dockerfile"
    if not path.is_file():
        return built
    here = "/"
    for line in lines(read_text(path, HINT)):
        if line.order == "WORKDIR":
            here = posixpath.normpath(posixpath.join(here, _expanded(built, line.rest.strip("\"'"))))
            built.workdir = here if here != "/" else default
        elif line.order == "ENV":
            _env(built, line.rest)
        elif line.order == "ARG":
            name, _, value = line.rest.partition("=")
            built.arguments[name.strip()] = _expanded(built, value.strip().strip("\"'"))
        elif line.order == "SHELL":
            built.shell = "bash" if "bash" in line.rest else "sh"
        elif line.order in ("COPY", "ADD") and not any(flag.startswith("--from") for flag in line.flags):
            _copy(built, folder, here, line)
        elif line.order == "RUN":
            _run(built, here, line)
        elif line.order not in _HARMLESS:
            built.notes.append(f"not done: {line.shown}")
    return built


def _expanded(built: Built, text: str) -> str:
    known = {**built.arguments, **built.environment}
    return _NAMES.sub(lambda found: known.get(found[1] or found[3], found[2] or found[0]), text)


def _env(built: Built, rest: str) -> None:
    try:
        words = shlex.split(rest)
    except ValueError:
        words = []
    if words and all("=" in word for word in words):
        given = dict(word.split("=", 1) for word in words)
    else:
        given = {words[0]: " ".join(words[1:])} if len(words) > 1 else {}
    for name, value in given.items():
        value = _expanded(built, value)
        if name == "PATH" or "$" in value:
            built.notes.append(f"not done: ENV {name}={value[:200]}")
        else:
            built.environment[name] = value


def _run(built: Built, here: str, line: Line) -> None:
    """As a set-up command, where something is left of it without installers."""
    script = line.rest
    for document in line.documents:
        body = document.text.removesuffix("\n")
        alone = re.fullmatch(r"<<-?[\"']?\w+[\"']?", script)
        script = body if alone else f"{script}\n{body}\n{document.name}"
    if line.words:
        script = shlex.join(line.words)
    parts = [part.strip(" \t()") for part in re.split(r"&&|\|\||;|\n", script)]
    if all(_NO_WORK.fullmatch(part) for part in parts):
        built.notes.append(f"not done: {line.shown}")
        return
    if any(_NO_WORK.fullmatch(part) for part in parts) or re.search(r"\b(curl|wget|git clone)\b", script):
        built.notes.append(f"done without what it installs or fetches: {line.shown}")
    given = "".join(f"export {name}={shlex.quote(value)}; " for name, value in built.arguments.items())
    known = "".join(f"export {name}={shlex.quote(value)}; " for name, value in built.environment.items())
    built.commands.append(f"export PATH={BIN}:$PATH; {given}{known}mkdir -p {shlex.quote(here)} 2>/dev/null; "
                          f"cd {shlex.quote(here)} && {built.shell} -c {shlex.quote(script)} || true")


def _copy(built: Built, folder: Path, here: str, line: Line) -> None:
    words = list(line.words) or _words(_expanded(built, line.rest))
    texts = {f"<<{document.name}": document for document in line.documents}
    if len(words) < 2:
        built.notes.append(f"not done: {line.shown}")
        return
    target = posixpath.join(here, words[-1])
    into = words[-1].endswith(("/", ".")) or len(words) > 2
    for source in words[:-1]:
        if document := texts.get(re.sub(r"<<-?[\"']?(\w+)[\"']?", r"<<\1", source)):
            name = posixpath.join(target, document.name) if into else target
            built.files[posixpath.normpath(name)] = document.text.encode()
            continue
        matches = sorted(folder.glob(source.lstrip("/"))) if source.strip("./") else [folder]
        if not matches:
            built.notes.append(f"not done: {line.shown}")
        for match in matches:
            if not match.resolve().is_relative_to(folder.resolve()):
                raise TaskError("a Dockerfile copies from outside of its folder", where=str(folder), value=source,
                                hint=HINT)
            _put(built, match, target, into)


def _words(rest: str) -> list[str]:
    try:
        return shlex.split(rest)
    except ValueError:
        return []


def _hidden(built: Built, path: Path) -> bool:
    return path.resolve().relative_to(built.folder).parts[0] in built.hidden


def _put(built: Built, source: Path, target: str, into: bool) -> None:
    if source.is_dir():
        for path in sorted(source.rglob("*")):
            if path.is_file() and path.resolve().is_relative_to(source.resolve()) and not _hidden(built, path):
                name = posixpath.join(target, path.relative_to(source).as_posix())
                built.files[posixpath.normpath(name)] = path.read_bytes()
    elif not _hidden(built, source):
        name = posixpath.join(target, source.name) if into else target
        built.files[posixpath.normpath(name)] = source.read_bytes()
