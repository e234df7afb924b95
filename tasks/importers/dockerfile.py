"""What of a task's Dockerfile can be had without building it: WORKDIR, ENV, and COPY of the context's files into the
working directory. Every other line that would change the image becomes a note."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Sequence
from pathlib import Path

from schemas.errors import TaskError
from tasks.importers.reading import read_text

HINT = "the task's environment/Dockerfile"
_HARMLESS = ("FROM", "LABEL", "CMD", "ENTRYPOINT", "EXPOSE", "ARG", "SHELL", "STOPSIGNAL", "HEALTHCHECK", "MAINTAINER")
_TAKEN = ("/workspace", "/tmp", "/proc", "/dev", "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/tests",
          "/logs")


class Built:
    def __init__(self, workdir: str, hidden: Sequence[str]) -> None:
        self.workdir, self.hidden, self.folder = workdir, hidden, Path()
        self.environment: dict[str, str] = {}
        self.notes: list[str] = []
        self.files: dict[str, bytes] = {}
        """By absolute path."""

    def files_of(self, workdir: str) -> dict[str, bytes]:
        """Files of the workspace by relative path. Raises TaskError where the working directory cannot be one."""
        if workdir == "/" or workdir != posixpath.normpath(workdir) or not workdir.startswith("/") or any(
                workdir == taken or workdir.startswith(f"{taken}/") for taken in (*_TAKEN, "/solution")):
            raise TaskError("the working directory cannot be the workspace", where="environment.workdir", value=workdir,
                            hint="a folder of its own, for example /app")
        inside, prefix = {}, workdir.rstrip("/") + "/"
        for path, data in self.files.items():
            if path.startswith(prefix):
                inside[path[len(prefix):]] = data
            else:
                self.notes.append(f"{path} is not there")
        return inside


def read(folder: Path, default: str, hidden: Sequence[str] = ()) -> Built:
    """`hidden`: names of the folder that must not be copied with it, as they are not the policy's to see."""
    built = Built(default, (*hidden, "Dockerfile"))
    built.folder = folder.resolve()
    path = folder / "Dockerfile"
    if not path.is_file():
        return built
    here = "/"
    text = read_text(path, HINT).replace("\\\n", " ")
    for line in (raw.strip() for raw in text.split("\n")):
        word, _, rest = line.partition(" ")
        order, rest = word.upper(), rest.strip()
        if not line or line.startswith("#") or order in _HARMLESS:
            continue
        if order == "WORKDIR":
            here = posixpath.normpath(posixpath.join(here, rest.strip("\"'")))
            built.workdir = here if here != "/" else default
        elif order == "ENV":
            _env(built, rest)
        elif order in ("COPY", "ADD") and "--from" not in rest:
            _copy(built, folder, here, rest)
        else:
            built.notes.append(f"not done: {line[:200]}")
    return built


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
        if name == "PATH" or "$" in value:
            built.notes.append(f"not done: ENV {name}={value[:200]}")
        else:
            built.environment[name] = value


def _copy(built: Built, folder: Path, here: str, rest: str) -> None:
    words = [word for word in rest.replace('["', "").replace('"]', "").replace('", "', " ").split()
             if not word.startswith("--")]
    if len(words) < 2:
        built.notes.append(f"not done: COPY {rest[:200]}")
        return
    target = posixpath.join(here, words[-1])
    for source in words[:-1]:
        matches = sorted(folder.glob(source.lstrip("/"))) if source.strip("./") else [folder]
        if not matches:
            built.notes.append(f"not done: COPY {rest[:200]}")
        for match in matches:
            if not match.resolve().is_relative_to(folder.resolve()):
                raise TaskError("a Dockerfile copies from outside of its folder", where=str(folder), value=source,
                                hint=HINT)
            _put(built, match, target, words[-1].endswith(("/", ".")) or len(words) > 2)


def _hidden(built: Built, path: Path) -> bool:
    return path.resolve().relative_to(built.folder).parts[0] in built.hidden


def _put(built: Built, source: Path, target: str, into: bool) -> None:
    if source.is_dir():
        for path in sorted(source.rglob("*")):
            if path.is_file() and path.resolve().is_relative_to(source.resolve()) and not _hidden(built, path):
                name = posixpath.join(target, path.relative_to(source).as_posix())
                built.files[posixpath.normpath(name)] = path.read_bytes()
    else:
        name = posixpath.join(target, source.name) if into else target
        built.files[posixpath.normpath(name)] = source.read_bytes()
