"""`headrace doctor`: what this machine can run, and how to get what is missing."""

from __future__ import annotations

import argparse
import importlib.util
import platform
import shutil
from collections.abc import Iterator
from typing import NamedTuple

from headrace.options import add_home, add_output, add_sandbox, settings_of
from sandboxes import BACKENDS
from schemas.settings import Settings

EXAMPLES = """examples:
  headrace doctor
"""


class Finding(NamedTuple):
    name: str
    works: bool
    needed: bool
    detail: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_output(parser)
    add_home(parser)
    add_sandbox(parser)


def run(options: argparse.Namespace) -> int:
    from headrace.output import print_rows

    findings = list(_findings(settings_of(options)))
    if options.output == "table":
        for finding in findings:
            mark = "ok  " if finding.works else "FAIL" if finding.needed else "no  "
            print(f"{mark}  {finding.name:<22} {finding.detail}")
    else:
        print_rows(Finding._fields, findings, options.output)
    return 1 if any(finding.needed and not finding.works for finding in findings) else 0


def _findings(settings: Settings) -> Iterator[Finding]:
    yield Finding("python", True, True, platform.python_version())
    yield _home(settings)
    yield _log(settings)
    for name in BACKENDS:
        yield _sandbox(name, settings.sandbox_backend == name)
    for extra, modules in {
        "docker": ["docker"],
        "kafka": ["kafka", "crc32c", "zstandard"],
        "pipelines": ["dagster"],
        "scene": ["embreex", "manifold3d", "PIL", "scipy"],
        "train": ["torch", "megatron.core", "transformers"],
    }.items():
        yield _extra(extra, modules)
    yield from _toolchains()
    java = shutil.which("java")
    yield Finding("java (make kafka)", bool(java), False, java or "apt-get install openjdk-17-jre-headless maven")


def _home(settings: Settings) -> Finding:
    from headrace.rooms import Rooms
    from schemas.errors import HeadraceError

    try:
        home = Rooms(settings).make_home().home
        free = shutil.disk_usage(home).free
        return Finding("home", free > 1 << 30, True, f"{home} ({free / 1e9:.0f} GB free)")
    except HeadraceError as error:
        return Finding("home", False, True, str(error))


def _log(settings: Settings) -> Finding:
    from eventlog import open_log
    from schemas.errors import HeadraceError

    try:
        log = open_log(settings)
        detail = f"{settings.log}, identity {log.identity}"
        log.close()
        return Finding("log", True, True, detail)
    except HeadraceError as error:
        return Finding("log", False, True, f"{error}; {error.hint}")


def _sandbox(name: str, needed: bool) -> Finding:
    from sandboxes import probe

    why = probe(name)
    return Finding(f"sandbox {name}", why is None, needed, why or ("isolates" if name != "process" else "no isolation"))


def _extra(extra: str, modules: list[str]) -> Finding:
    missing = [module for module in modules if not _importable(module)]
    detail = ", ".join(modules) if not missing else f"missing {', '.join(missing)}: pip install 'headrace[{extra}]'"
    return Finding(f"extra {extra}", not missing, False, detail)


def _toolchains() -> Iterator[Finding]:
    from verifiers.scene.toolchains import describe

    for name, (works, detail) in describe().items():
        yield Finding(f"{name} (scene)", works, False, detail)


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
