"""OpenSCAD and build123d programs, run in the sandbox: real examples against their measured references, and what went
wrong is named. `SCENE_ALL=1` (make cad-test) takes the slow examples, too."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.enums import ScoreStatus
from schemas.events import ScoreRecorded
from tasks.shapes import ascii_stl, box
from tasks.task import Task
from tests.conftest import require_real
from tests.verifiers.rig import Rig
from verifiers.scene import toolchains

ALL = os.environ.get("SCENE_ALL") == "1"
SLOW = pytest.mark.skipif(not ALL, reason="slow; make cad-test runs it")
DEADLINE_S = 150.0


@pytest.fixture
def openscad() -> None:
    path, why = toolchains.openscad()
    if path is None:
        require_real("openscad", f"{why}; {toolchains.OPENSCAD_HINT}")


@pytest.fixture
def build123d() -> None:
    folder, why = toolchains.build123d()
    if folder is None:
        require_real("build123d", f"{why}; {toolchains.CAD_HINT}")


def task(tool: str, program: str, **hidden: Any) -> Task:
    more = hidden.pop("toolchain", {})
    return Task(task_id="p", kind="scene", set="s", prompt="p", hidden={
        "mesh": "part.stl", "max_triangles": 100_000, **hidden,
        "toolchain": {"name": tool, "program": program, "deadline_s": 120.0, **more}})


def scored(rig: Rig, made: Task, files: dict[str, bytes | str]) -> tuple[ScoreRecorded, dict[str, Any]]:
    score = rig.score(rig.hand_in(made, files), deadline_s=DEADLINE_S)
    assert score.status == ScoreStatus.OK, rig.evidence(score)
    return score, rig.evidence(score)["details"]


def reference_row(reference: Path, name: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = json.loads(reference.read_text())["rows"]
    return next(row for row in rows if row["file"] == name)


@pytest.mark.parametrize("name", [
    "CSG.scad", "linear_extrude.scad", "projection.scad", pytest.param("CSG-modules.scad", marks=SLOW)])
def test_openscad_programs_make_what_their_reference_says(
        rig: Rig, cases: Callable[[str], Path], openscad: None, name: str) -> None:
    """The reference of projection.scad was measured without the file that it imports: OpenSCAD warns and goes on."""
    reference = cases("3d/openscad-examples/REFERENCE.json")
    row = reference_row(reference, name)
    made = task("openscad", name, extents=row["extents"], volume=row["volume"], area=row["area"], bodies=row["bodies"],
                tolerance=1e-5)
    score, details = scored(rig, made, {name: (reference.parent / name).read_bytes()})
    assert score.reward == 1.0, details
    missing = [line for line in details["toolchain"]["warnings"] if "projection.stl" in line]
    assert (score.components["clean"] == 0.0) == bool(missing) == (name == "projection.scad")


def test_a_program_without_a_model_of_its_own_exits_1(
        rig: Rig, cases: Callable[[str], Path], openscad: None) -> None:
    program = cases("3d/openscad-examples/list_comprehensions.scad").read_text()
    score, details = scored(rig, task("openscad", "a.scad", volume=1), {"a.scad": program})
    assert (score.reward, score.components["toolchain"], score.components["loads"]) == (0.0, 0.0, 0.0)
    assert details["toolchain"]["exit_code"] == 1 and details["problem"] == "there is no part.stl"
    assert "Current top level object is not a 3D object." in details["toolchain"]["errors"]


def test_an_undefined_module_is_named_though_openscad_exits_0(rig: Rig, openscad: None) -> None:
    files: dict[str, bytes | str] = {"a.scad": "cube([2, 4, 6]);\nhole(3);\n"}
    score, details = scored(rig, task("openscad", "a.scad", volume=48), files)
    assert details["toolchain"]["exit_code"] == 0 and score.reward == 1.0
    assert score.components["toolchain"] == 1.0 and score.components["clean"] == 0.0
    assert details["toolchain"]["warnings"] == ["WARNING: Ignoring unknown module 'hole' in file a.scad, line 2"]
    strict, details = scored(rig, task("openscad", "a.scad", volume=48, toolchain={"hardwarnings": True}), files)
    assert (strict.reward, details["failed"]) == (0.0, ["toolchain"])
    assert "warnings" in details["toolchain"]["problem"] and details["measured"]["volume"] == 48
    again = rig.score(rig.hand_in(task("openscad", "a.scad", volume=48), files), deadline_s=DEADLINE_S)
    assert again.evidence == score.evidence


@pytest.mark.parametrize(("program", "said"), [
    ("cube(3", "Parser error"), ("", "empty"), ('import("part.stl");', "part.stl"),
    ('import("/etc/passwd.stl");', "passwd"),
    ("assert(false);", "Assertion 'false' failed"), ("cube(-1);", "exit code 1"), (None, "there is no a.scad")])
def test_openscad_programs_that_fail_say_why(rig: Rig, openscad: None, program: str | None, said: str) -> None:
    """The right model lies beside the program each time: it was taken away before the program ran."""
    files: dict[str, bytes | str] = {"part.stl": ascii_stl(box(2, 4, 6))}
    if program is not None:
        files["a.scad"] = program
    score, details = scored(rig, task("openscad", "a.scad", volume=48), files)
    assert score.reward == 0.0 and said in json.dumps(details)


def test_a_sandbox_without_the_toolchain_is_no_zero(rig: Rig, openscad: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host has it, below a folder that this sandbox has not: as an image without it would be."""
    monkeypatch.setattr(toolchains, "openscad", lambda: ("/usr/nowhere/openscad", ""))
    monkeypatch.setattr(toolchains, "_openscad_version", lambda path: "1")
    score = rig.score(rig.hand_in(task("openscad", "a.scad", volume=48), {"a.scad": "cube(1);"}))
    assert (score.status, score.reward) == (ScoreStatus.INFRA_FAILURE, None)
    assert "the sandbox has no openscad" in rig.evidence(score)["details"]["message"]


def test_a_missing_toolchain_is_no_zero(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    submission = rig.hand_in(task("openscad", "a.scad", volume=48), {"a.scad": "cube(1);"})
    monkeypatch.setenv("PATH", "/nowhere")
    score = rig.score(submission)
    assert (score.status, score.reward) == (ScoreStatus.INFRA_FAILURE, None)
    assert rig.evidence(score)["details"]["hint"] == "apt-get install openscad"


QUICK = ("boxes_on_faces_algebra.py",)
REST = ("circuit_board_algebra.py", "din_rail_algebra.py", "extrude_algebra.py", "handle_algebra.py",
        "holes_algebra.py", "intersecting_chamfers_algebra.py", "key_cap_algebra.py", "loft_algebra.py",
        "pillow_block_algebra.py", "spring.py", "vase_algebra.py")


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=SLOW) for name in REST)])
def test_build123d_programs_make_what_their_reference_says(
        rig: Rig, cases: Callable[[str], Path], build123d: None, name: str) -> None:
    """The reference is of the exact surfaces, ours of their triangles: thin curved walls differ by up to 1 %."""
    reference = cases("3d/build123d-examples/REFERENCE.json")
    row = reference_row(reference, name)
    made = task("build123d", name, extents=row["bbox"], volume=row["volume"], area=row["area"], tolerance=1.2e-2)
    score, details = scored(rig, made, {name: (reference.parent / name).read_bytes()})
    assert score.reward == 1.0, details
    assert details["toolchain"]["version"].startswith("build123d ")


def test_a_build123d_program_names_its_variable_or_writes_the_file(rig: Rig, build123d: None) -> None:
    program = "from build123d import *\nbig = Box(9, 9, 9)\nwith BuildPart() as small:\n    Box(2, 4, 6)\n"
    named = task("build123d", "a.py", volume=48, toolchain={"variable": "small"})
    assert scored(rig, named, {"a.py": program})[0].reward == 1.0
    wrote = program + "export_stl(small.part, 'part.stl')\n"
    assert scored(rig, task("build123d", "a.py", volume=48), {"a.py": wrote})[0].reward == 1.0


def test_a_build123d_program_without_a_solid_says_so(rig: Rig, build123d: None) -> None:
    program = "from build123d import *\nsketch = Circle(3)\n"
    score, details = scored(rig, task("build123d", "a.py", volume=48), {"a.py": program})
    assert (score.reward, details["toolchain"]["exit_code"], score.components["toolchain"]) == (0.0, 1, 0.0)
    assert details["toolchain"]["errors"] == ["no solid found: assign a part, a solid or a compound to a variable"]


@SLOW
def test_a_build123d_program_of_a_drawing_has_no_solid(rig: Rig, cases: Callable[[str], Path], build123d: None) -> None:
    program = cases("3d/build123d-examples/clock_algebra.py").read_text()
    score, details = scored(rig, task("build123d", "clock.py", volume=1), {"clock.py": program})
    assert score.reward == 0.0 and "no solid found" in json.dumps(details["toolchain"]["errors"])


def test_the_doctor_names_each_toolchain_and_how_to_get_it(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchains, "_REPOSITORY", tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    assert toolchains.describe() == {
        "openscad": (False, "openscad is not installed: apt-get install openscad"),
        "build123d": (False, "build123d is not installed: make cad")}
    (tmp_path / ".venv-cad" / "lib" / "python3.4").mkdir(parents=True)
    assert "is for python3.4, not python3." in toolchains.describe()["build123d"][1]
