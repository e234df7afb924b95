"""Tasks of the older Terminal-Bench: `task.yaml`, `run-tests.sh`, `tests/`, `solution.sh` or `solution.yaml`.

The exit code of `run-tests.sh` is the verdict. Part of the importer `harbor`, which finds such folders by itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from schemas.errors import TaskError, UnavailableError
from schemas.events import Limits
from tasks.importers import dockerfile
from tasks.importers.reading import read_bytes, read_text
from tasks.scripts import TOOLS, done, run
from tasks.task import Task

SET = "terminal-bench"
HINT = "a Terminal-Bench task is a folder with task.yaml, run-tests.sh and tests/"
_HIDDEN = ("tests", "solution", "solution.sh", "solution.yaml", "run-tests.sh", "task.yaml", "docker-compose.yaml")
_DEFAULTS = {"max_agent_timeout_sec": 360.0, "max_test_timeout_sec": 60.0}


def load(path: str | Path) -> list[Task]:
    from tasks.importers import harbor

    return harbor.load(path)


def load_one(folder: Path) -> Task:
    from tasks.importers.harbor import MAX_TURNS, executables, folder_files, prompt_of, strip_canary

    where = folder / "task.yaml"
    config = _yaml(where)
    if not isinstance(config, dict) or not isinstance(config.get("instruction"), str):
        raise TaskError("the task has no instruction", where=f"{where} instruction", hint=HINT)
    if not (folder / "run-tests.sh").is_file():
        raise TaskError("there is no test script", where=str(folder / "run-tests.sh"), hint=HINT)
    built = dockerfile.read(folder, "/app", _HIDDEN)
    files = {"run-tests.sh": read_bytes(folder / "run-tests.sh", HINT), **folder_files(folder / "tests")}
    files_there, setup = built.files_of(built.workdir), built.setup_of(built.workdir)
    return Task(
        task_id=folder.resolve().name, kind="terminal", set=SET, tools=TOOLS,
        aliases=dockerfile.aliases_of(built.workdir), files=files_there, setup=setup, environment=built.environment,
        prompt=prompt_of(strip_canary(config["instruction"]), built.workdir),
        limits=Limits(max_turns=MAX_TURNS, wall_clock_s=_seconds(config, "max_agent_timeout_sec", where)),
        hidden={"workdir": built.workdir, "notes": [*built.notes, "there is no network"], "script": {
            "entry": "run-tests.sh", "files": files, "by_exit_code": True,
            "executables": executables(folder / "tests") if (folder / "tests").is_dir() else [],
            "timeout_s": _seconds(config, "max_test_timeout_sec", where)}},
        reference=_reference(folder, built.workdir))


def _seconds(config: dict[str, Any], key: str, where: Path) -> float:
    value = config.get(key, _DEFAULTS[key])
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise TaskError("the time limit is no positive number", where=f"{where} {key}", value=value, hint=HINT)
    return float(value)


def _reference(folder: Path, workdir: str) -> list[str]:
    from tasks.importers.harbor import reference_of

    if (folder / "solution.sh").is_file():
        return reference_of({"solution.sh": read_bytes(folder / "solution.sh", HINT)}, "solution.sh", workdir, {})
    if not (folder / "solution.yaml").is_file():
        return []
    steps = _yaml(folder / "solution.yaml")
    if not isinstance(steps, list) or not all(isinstance(step, dict) and "command" in step for step in steps):
        raise TaskError("the solution is no list of commands", where=str(folder / "solution.yaml"), hint=HINT)
    return [*(run(f"cd {workdir} && {step['command']}") for step in steps), done()]


def _yaml(path: Path) -> Any:
    try:
        import yaml
    except ImportError:
        raise UnavailableError("tasks of the older Terminal-Bench are YAML, and no YAML library is installed",
                               hint="install the extra: headrace[terminal]") from None
    try:
        return yaml.safe_load(read_text(path, HINT))
    except (yaml.YAMLError, RecursionError) as wrong:
        raise TaskError(f"not YAML ({str(wrong)[:200]})", where=str(path), hint=HINT) from None
