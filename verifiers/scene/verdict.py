"""Verdicts on 3D models: gates first, then what the task asks for, measured by this project's own mesh code.

Gates (any that fails: reward 0): the file is there and parses, under the caps; every edge belongs to two triangles;
the winding is consistent; the volume is positive (an inside-out mesh is no solid); the number of bodies is right;
and, where the task asks for a program, that program makes the file again in the verifier's sandbox.
Constraints (the reward is the mean of those declared): `extents`, `volume`, `area`, `euler`, `probes` (points that
must be inside or outside, from the bounding box's lowest corner: a wrong shape with the right numbers fails here).

`task.hidden`: `mesh` (relative path; its ending is the format), `tolerance` (relative), `bodies`, `max_triangles`,
`toolchain`?: {`argv`, `deadline_s`}, and the constraints.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sandboxes.sandbox import Sandbox
from schemas.errors import VerifierError
from tasks.task import Submission, Task
from verifiers.digest import code_digest
from verifiers.scene.measures import Measures, measure, winding
from verifiers.scene.mesh import MAX_BYTES, Mesh, MeshError, parse_mesh
from verifiers.submitted import NotSubmitted, read_submitted
from verifiers.verifier import Context, Score

MODULES = ("verifiers.scene.verdict", "verifiers.scene.mesh", "verifiers.scene.measures", "verifiers.submitted")
CONSTRAINTS = ("extents", "volume", "area", "euler", "probes")
INSIDE = 0.5
Point = tuple[float, float, float]


class Toolchain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    argv: list[str]
    deadline_s: float = 10.0


class Probes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    inside: list[Point] = []
    outside: list[Point] = []


class SceneHidden(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mesh: str
    tolerance: float = 1e-3
    bodies: int = 1
    max_triangles: int = 20_000
    extents: Point | None = None
    volume: float | None = None
    area: float | None = None
    euler: int | None = None
    probes: Probes | None = None
    toolchain: Toolchain | None = None


class SceneVerifier:
    name = "scene"

    @property
    def digest(self) -> str:
        return code_digest(MODULES)

    def verify(self, submission: Submission, task: Task, context: Context) -> Score:
        """Components: one per gate (0 or 1) and one per declared constraint (share of it that holds)."""
        hidden = _hidden(task)
        sandbox = context.open_sandbox(submission, task)
        gates: dict[str, float] = {}
        evidence: dict[str, Any] = {"mesh": hidden.mesh}
        if hidden.toolchain:
            evidence["toolchain"] = _run_program(sandbox, hidden.mesh, hidden.toolchain)
            gates["toolchain"] = float(evidence["toolchain"]["exit_code"] == 0)
        try:
            mesh = parse_mesh(read_submitted(sandbox, hidden.mesh, MAX_BYTES), hidden.mesh, hidden.max_triangles)
        except (NotSubmitted, MeshError) as wrong:
            return Score(reward=0.0, components={**gates, "loads": 0.0}, evidence={**evidence, "problem": str(wrong)})
        measures = measure(mesh)
        gates |= {"loads": 1.0, "closed": float(measures.closed), "consistent": float(measures.consistent),
                  "solid": float(measures.volume > 0), "bodies": float(measures.bodies == hidden.bodies)}
        held = _constraints(mesh, measures, hidden)
        passed = all(gates.values())
        return Score(reward=sum(held.values()) / len(held) if passed else 0.0, components={**gates, **held},
                     evidence={**evidence, "measured": measures._asdict()})


def _hidden(task: Task) -> SceneHidden:
    try:
        hidden = msgspec.convert(task.hidden, SceneHidden)
    except msgspec.ValidationError as wrong:
        raise VerifierError(f"the task's hidden part is wrong: {wrong}", where=f"task {task.task_id}") from None
    if all(getattr(hidden, name) is None for name in CONSTRAINTS):
        raise VerifierError("a scene task declares no constraint", where=f"task {task.task_id}")
    return hidden


def _run_program(sandbox: Sandbox, mesh: str, toolchain: Toolchain) -> dict[str, Any]:
    """Make the mesh again from the submitted program: the file that was handed in is taken away first."""
    sandbox.exec(["rm", "-rf", "--", mesh])
    result = sandbox.exec(toolchain.argv, deadline_s=toolchain.deadline_s)
    return {"exit_code": result.exit_code, "timed_out": result.timed_out, "oom": result.oom,
            "stderr": result.stderr[-500:].decode(errors="replace")}


def _constraints(mesh: Mesh, measures: Measures, hidden: SceneHidden) -> dict[str, float]:
    held: dict[str, float] = {}
    if hidden.extents is not None:
        pairs = zip(measures.extents, hidden.extents, strict=True)
        held["extents"] = sum(_near(got, want, hidden.tolerance) for got, want in pairs) / 3
    if hidden.volume is not None:
        held["volume"] = float(_near(measures.volume, hidden.volume, hidden.tolerance))
    if hidden.area is not None:
        held["area"] = float(_near(measures.area, hidden.area, hidden.tolerance))
    if hidden.euler is not None:
        held["euler"] = float(measures.euler == hidden.euler)
    if hidden.probes is not None:
        held["probes"] = _probed(mesh, measures.corner, hidden.probes)
    return held


def _near(got: float, want: float, tolerance: float) -> bool:
    return abs(got - want) <= tolerance * abs(want)


def _probed(mesh: Mesh, corner: Point, probes: Probes) -> float:
    """Share of the probes on the right side of the surface."""
    wanted = [(point, True) for point in probes.inside] + [(point, False) for point in probes.outside]
    right = 0
    for point, inside in wanted:
        at = (corner[0] + point[0], corner[1] + point[1], corner[2] + point[2])
        right += (winding(mesh, at) > INSIDE) == inside
    return right / len(wanted)
