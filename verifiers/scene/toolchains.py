"""Programs that make models, and how they run inside a sandbox. None of them ever runs a submission outside of one.

`openscad` is the system's (in /usr, which every sandbox has). `build123d` is about 1 GB and has an environment of its
own: `.venv-cad` in the repository (`make cad`), or the one that runs us where extra `cad` is installed; its packages
are mounted read-only.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from schemas.errors import UnavailableError
from verifiers.program import ENVIRONMENT, command
from verifiers.scene.spec import Toolchain

CAD_INSIDE = "/opt/cad"
FONTS_INSIDE = "/opt/fonts"
OPENSCAD_HINT = "apt-get install openscad"
CAD_HINT = "make cad"
_PROBE = "import os, sys; sys.exit(sys.version_info[1] != {minor} or not os.path.isdir('/opt/cad/build123d'))"
_FONTS = Path("/etc/fonts")
_REPOSITORY = Path(__file__).resolve().parents[2]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What to do in the sandbox, and what must be mounted there for it."""

    argv: list[str]
    probe: list[str] = []
    """A command that ends with 0 in a sandbox that has the toolchain. No sandbox without it judges a program."""
    version: str = ""
    environment: Mapping[str, str] = {}
    readonly: Mapping[str, Path] = {}
    memory_mb: int = 1024


def run_of(toolchain: Toolchain, mesh: str) -> Run:
    """Raises UnavailableError where the toolchain is not on this machine: that is not the submission's fault."""
    if toolchain.name == "openscad":
        return _openscad(toolchain.program, mesh)
    if toolchain.name == "build123d":
        return _build123d(toolchain, mesh)
    return Run(argv=toolchain.argv)


def _openscad(program: str, mesh: str) -> Run:
    path, why = openscad()
    if path is None:
        raise UnavailableError("OpenSCAD programs cannot be run here", value=why, hint=OPENSCAD_HINT)
    return Run(argv=[path, "-o", mesh, program], probe=[path, "--version"], version=_openscad_version(path),
               readonly=_fonts(), environment={"FONTCONFIG_PATH": FONTS_INSIDE, "QT_QPA_PLATFORM": "offscreen"})


def _build123d(toolchain: Toolchain, mesh: str) -> Run:
    folder, why = build123d()
    if folder is None:
        raise UnavailableError("build123d programs cannot be run here", value=why, hint=CAD_HINT)
    return Run(argv=[*command("verifiers.scene.cad_runner"), toolchain.program, mesh, toolchain.variable],
               probe=["python3", "-I", "-c", _PROBE.format(minor=sys.version_info.minor)],
               version=_version(folder), memory_mb=2048, readonly={CAD_INSIDE: folder, **_fonts()},
               environment={**ENVIRONMENT, "FONTCONFIG_PATH": FONTS_INSIDE, "PYTHONPATH": CAD_INSIDE,
                            "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})


def _fonts() -> dict[str, Path]:
    return {FONTS_INSIDE: _FONTS} if _FONTS.is_dir() else {}


def openscad() -> tuple[str | None, str]:
    """Its path inside a sandbox, or why there is none."""
    found = shutil.which("openscad")
    if found is None:
        return None, "openscad is not installed"
    path = Path(found).resolve()
    return (str(path), "") if path.is_relative_to("/usr") else (None, f"{path} is not below /usr: no sandbox has it")


@functools.cache
def _openscad_version(path: str) -> str:
    said = subprocess.run([path, "--version"], capture_output=True, timeout=30, check=False)
    return (said.stdout + said.stderr).decode(errors="replace").strip()[:100]


def build123d() -> tuple[Path | None, str]:
    """The folder of packages to mount, or why there is none."""
    minor = f"python3.{sys.version_info.minor}"
    own = _REPOSITORY / ".venv-cad" / "lib"
    if (own / minor / "site-packages" / "build123d").is_dir():
        return own / minor / "site-packages", ""
    found = importlib.util.find_spec("build123d")
    if found and found.origin:
        return Path(found.origin).parents[1], ""
    others = sorted(path.name for path in own.glob("python3.*"))
    return None, f".venv-cad is for {', '.join(others)}, not {minor}" if others else "build123d is not installed"


def _version(folder: Path) -> str:
    found = sorted(folder.glob("build123d-*.dist-info"))
    named = re.match(r"build123d-(.+)\.dist-info", found[0].name) if found else None
    return f"build123d {named[1]}" if named else "build123d"


def describe() -> dict[str, tuple[bool, str]]:
    """For `headrace doctor`: toolchain, whether it works, and what or how to get it."""
    path, why = openscad()
    folder, whynot = build123d()
    return {
        "openscad": (True, f"{path}, {_openscad_version(path)}") if path else (False, f"{why}: {OPENSCAD_HINT}"),
        "build123d": (True, f"{_version(folder)} in {folder}") if folder else (False, f"{whynot}: {CAD_HINT}")}
