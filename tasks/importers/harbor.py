"""Harbor tasks as they are: a folder with `task.toml`, `instruction.md`, `tests/`, `solution/`, `environment/`; or a
folder of such folders. Folders of the older Terminal-Bench (`task.yaml`) are taken too.

The image is not built: a task runs on the sandbox's own programs, without a network, with its working directory as the
workspace. Of a Dockerfile WORKDIR, ENV, COPY and what RUN can do without root, network and installers is done (see
tasks.importers.dockerfile); the rest, and whatever else is not there, is told in `hidden.notes` and so in every
verdict's evidence. What cannot be judged at all is refused.
"""

from __future__ import annotations

import base64
import math
import posixpath
import re
import tomllib
from pathlib import Path
from typing import Any

from schemas.errors import TaskError
from schemas.events import Limits
from tasks.importers import dockerfile, terminal_bench
from tasks.importers.reading import read_text
from tasks.scripts import PROTOCOL, TOOLS, done, run
from tasks.task import Task

SET = "harbor"
HINT = "a Harbor task is a folder with task.toml, instruction.md and tests/test.sh"
WORKDIR = "/app"
MAX_TURNS = 100
FOLDER_BYTES = 64 << 20
_VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4")
_CANARY = re.compile(r"\s*(<!--.*canary.*-->|#.*canary.*)\s*", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_CHUNK = 60_000
_MEMORY_MB = 512
"""Of a sandbox, unless a setting says more."""
_ABSOLUTE = re.compile(r"(?<![\w./:~-])(/(?:etc|root|home|opt|var|srv|data|output|mnt|tmp|usr)\b)")


def load(path: str | Path, refused: list[TaskError] | None = None) -> list[Task]:
    """The task of a folder, or the tasks of the folders in it. What is broken goes to `refused`, or is raised where
    there is no such list or no sound task."""
    root = Path(path)
    if not root.is_dir():
        raise TaskError("there is no such folder", where=str(root), hint=HINT)
    folders = [root] if _is_task(root) else sorted(child for child in root.iterdir() if _is_task(child))
    if not folders:
        raise TaskError("the folder is no task and holds none", where=str(root), hint=HINT)
    tasks: dict[str, Task] = {}
    broken: list[TaskError] = []
    for folder in folders:
        try:
            task = _load(folder) if (folder / "task.toml").is_file() else terminal_bench.load_one(folder)
            if task.task_id in tasks:
                raise TaskError("a task's name stands there twice", where=str(folder), value=task.task_id, hint=HINT)
        except TaskError as wrong:
            broken.append(wrong)
            continue
        tasks[task.task_id] = task
    if broken and (refused is None or not tasks):
        raise broken[0]
    if refused is not None:
        refused += broken
    return list(tasks.values())


def _is_task(folder: Path) -> bool:
    return (folder / "task.toml").is_file() or (folder / "task.yaml").is_file()


def _load(folder: Path) -> Task:
    toml = folder / "task.toml"
    try:
        config = tomllib.loads(read_text(toml, HINT))
    except tomllib.TOMLDecodeError as wrong:
        raise TaskError(f"not TOML ({wrong})", where=str(toml), hint=HINT) from None
    version = config.get("schema_version", config.get("version", "1.0"))
    if version not in _VERSIONS:
        raise TaskError("this version of the format is not known", where=f"{toml} schema_version", value=version,
                        hint=f"known: {', '.join(_VERSIONS)}")
    sections = {name: _section(config, name, toml) for name in
                ("task", "metadata", "agent", "verifier", "environment", "solution")}
    _refuse(folder, config, sections, toml)
    environment = sections["environment"]
    built = dockerfile.read(folder / "environment", WORKDIR)
    workdir = str(environment.get("workdir") or built.workdir)
    files, setup = built.files_of(workdir), built.setup_of(workdir)
    instruction = strip_canary(read_text(folder / "instruction.md", HINT))
    notes = [*built.notes, *_notes(folder, config, sections), *_elsewhere(instruction, workdir)]
    tests = folder_files(folder / "tests")
    if not _has_command(tests["test.sh"]):
        notes.append("tests/test.sh holds no command, so no reward comes of it")
    name = str(sections["task"].get("name") or folder.resolve().name)
    return Task(
        task_id=name, kind="terminal", set=SET, tools=TOOLS, files=files, setup=setup,
        aliases=dockerfile.aliases_of(workdir), prompt=prompt_of(instruction, workdir),
        environment={**built.environment, **_variables(environment, toml, "environment")},
        limits=Limits(max_turns=MAX_TURNS, wall_clock_s=_seconds(sections["agent"], toml, "agent", 600.0)),
        hidden={"workdir": workdir, "notes": notes, "script": {
            "entry": "test.sh", "files": tests, "executables": executables(folder / "tests"),
            "environment": _variables(sections["verifier"], toml, "verifier"),
            "timeout_s": _seconds(sections["verifier"], toml, "verifier", 600.0)}},
        reference=reference_of(folder_files(folder / "solution"), "solve.sh", workdir,
                               _variables(sections["solution"], toml, "solution")))


def _section(config: dict[str, Any], name: str, toml: Path) -> dict[str, Any]:
    value = config.get(name, {})
    if not isinstance(value, dict):
        raise TaskError("this must be a table", where=f"{toml} [{name}]", value=value, hint=HINT)
    return value


def _refuse(folder: Path, config: dict[str, Any], sections: dict[str, dict[str, Any]], toml: Path) -> None:
    """What would give wrong verdicts here, rather than none."""
    environment, verifier = sections["environment"], sections["verifier"]
    refused = [
        ("steps" in config or (folder / "steps").is_dir(), "[[steps]]", "tasks of several steps are not supported"),
        (environment.get("os", "linux") != "linux", "[environment] os", "only linux tasks are supported"),
        (bool(environment.get("gpus")) or bool(environment.get("tpu")), "[environment] gpus", "sandboxes have no GPU"),
        (bool(environment.get("mcp_servers")), "[environment] mcp_servers", "MCP servers are not supported"),
        (bool(verifier.get("collect")), "[[verifier.collect]]", "commands that collect artifacts are not supported"),
        (any((folder / "environment" / name).is_file() for name in (
            "docker-compose.yaml", "docker-compose.yml", "compose.yaml")), "environment/",
         "several containers are not supported")]
    for found, where, what in refused:
        if found:
            raise TaskError(what, where=f"{toml} {where}", hint="leave this task out")
    if not (folder / "tests" / "test.sh").is_file():
        raise TaskError("there is no test script", where=str(folder / "tests" / "test.sh"), hint=HINT)


def _notes(folder: Path, config: dict[str, Any], sections: dict[str, dict[str, Any]]) -> list[str]:
    """What the task asks for and does not get."""
    environment, verifier, agent = sections["environment"], sections["verifier"], sections["agent"]
    separate = verifier.get("environment") or verifier.get("environment_mode") == "separate"
    asked = [
        (environment.get("docker_image"), f"image {environment.get('docker_image')} is not used"),
        (environment.get("network_mode", "public") != "no-network", "there is no network"),
        (environment.get("healthcheck"), "the health check is not run"),
        (environment.get("skills_dir"), "skills are not given to the policy"),
        (_above(environment, "memory_mb", _MEMORY_MB),
         f"memory is {_MEMORY_MB} MB, not {environment.get('memory_mb')}"),
        (agent.get("user"), f"commands do not run as the user {agent.get('user')}"),
        (verifier.get("user"), f"tests do not run as the user {verifier.get('user')}"),
        (separate or (folder / "tests" / "Dockerfile").is_file(), "the verifier's own image is not used"),
        (separate and config.get("artifacts"), "tests see the whole workspace, not the declared artifacts alone")]
    return [note for given, note in asked if given]


def _above(section: dict[str, Any], key: str, limit: float) -> bool:
    value = section.get(key)
    return isinstance(value, int | float) and value > limit


def _has_command(script: bytes) -> bool:
    return any(line.strip() and not line.strip().startswith(b"#") for line in script.splitlines())


def _elsewhere(instruction: str, workdir: str) -> list[str]:
    """Places that the instruction names and that a sandbox does not keep: they will not be there for the tests."""
    named = {match[1] for match in _ABSOLUTE.finditer(instruction)}
    return [f"{place} is not kept" for place in sorted(named) if not f"{workdir}/".startswith(f"{place}/")]


def _seconds(section: dict[str, Any], toml: Path, name: str, default: float) -> float:
    value = section.get("timeout_sec", default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise TaskError("the time limit is no positive number", where=f"{toml} [{name}] timeout_sec", value=value,
                        hint=HINT)
    return float(value)


def _variables(section: dict[str, Any], toml: Path, name: str) -> dict[str, str]:
    """Literal values and defaults. Variables of this machine are never read: a task would carry its secrets away."""
    found = {}
    given = section.get("env", {})
    if not isinstance(given, dict):
        raise TaskError("this must be a table", where=f"{toml} [{name}.env]", value=given, hint=HINT)
    for key, value in given.items():
        for variable, default in _VARIABLE.findall(str(value)):
            if f"${{{variable}}}" in str(value):
                raise TaskError("the value comes from the machine that runs the task", value=value,
                                where=f"{toml} [{name}.env] {key}", hint="write ${NAME:-default}, or a literal value")
            del default
        found[str(key)] = _VARIABLE.sub(lambda match: match[2] or "", str(value))
    return found


def strip_canary(text: str) -> str:
    """Without the leading canary lines and the empty lines after them."""
    lines = text.split("\n")
    while lines and _CANARY.fullmatch(lines[0]):
        lines.pop(0)
        while lines and not lines[0].strip():
            lines.pop(0)
    return "\n".join(lines).strip()


def prompt_of(instruction: str, workdir: str) -> str:
    return f"{instruction}\n\nCommands run in the workspace, which is {workdir}.\n\n{PROTOCOL}".lstrip()


def folder_files(folder: Path) -> dict[str, bytes]:
    """Plain files by relative path; links that lead out of the folder are refused."""
    found: dict[str, bytes] = {}
    size = 0
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if not path.resolve().is_relative_to(folder.resolve()):
            raise TaskError("a link leads out of its folder", where=str(path), hint="put the file itself there")
        if path.is_file():
            size += path.stat().st_size
            if size > FOLDER_BYTES:
                raise TaskError(f"the folder is larger than {FOLDER_BYTES >> 20} MiB", where=str(folder), hint=HINT)
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
    return found


def executables(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*")
                  if path.is_file() and path.stat().st_mode & 0o100)


def reference_of(files: dict[str, bytes], entry: str, workdir: str, environment: dict[str, str]) -> list[str]:
    """Turns that bring the solution's folder to /tmp/solution and run it. Its texts call it /solution, unless that is
    the working directory. What it installs counts as installed: it is here, or what needs it fails."""
    if entry not in files:
        return []
    turns = [run(dockerfile.shims())]
    for name, data in files.items():
        moved = data if f"{workdir}/".startswith("/solution/") else re.sub(
            rb"(?<![\w./-])/solution(?=[/\s\"'])", b"/tmp/solution", data)
        place = posixpath.join("/tmp/solution", name)
        text = base64.b64encode(moved).decode()
        turns.append(run(f"mkdir -p {_quoted(posixpath.dirname(place))} && : >{_quoted(place)}"))
        turns += [run(f"printf %s {text[at:at + _CHUNK]} | base64 -d >>{_quoted(place)}")
                  for at in range(0, len(text), _CHUNK)]
    given = "".join(f"{key}={_quoted(value)} " for key, value in environment.items())
    path = f"PATH={dockerfile.BIN}:$PATH"
    return [*turns, run(f"cd {_quoted(workdir)} && {path} {given}bash /tmp/solution/{entry}"), done()]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
