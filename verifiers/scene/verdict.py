"""Verdicts on 3D models: gates first, then what the task asks for, then likeness to a reference.

Gates (any that fails: reward 0): the program, if the task asks for one, makes the file again in the verifier's sandbox;
the file parses, under the caps; every edge belongs to two triangles; the winding is consistent; the volume is
positive; the numbers of bodies and cavities are right; no space is covered twice.
The reward is the mean of the declared constraints and of the comparison. The policy never sees the reference: it is
part of what the task hides, and no sandbox has it. `task.hidden` is `verifiers.scene.spec.SceneHidden`.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from tasks.task import Submission, Task
from verifiers.digest import code_digest
from verifiers.scene import formats, pictures
from verifiers.scene.compare import aligned, compare, reference_of
from verifiers.scene.constraints import held
from verifiers.scene.formats import max_bytes, parse_mesh
from verifiers.scene.gates import defects, gates
from verifiers.scene.measures import edges_of, measure
from verifiers.scene.mesh import Mesh, MeshError
from verifiers.scene.overlap import overlap
from verifiers.scene.program import make
from verifiers.scene.spec import SceneHidden, hidden_of, wanted_of
from verifiers.submitted import NotSubmitted, read_submitted
from verifiers.verifier import Context, Score

MODULES = (
    "verifiers.scene", *formats.MODULES, "verifiers.program", "verifiers.submitted",
    *(f"verifiers.scene.{name}" for name in (
        "cad_runner", "compare", "constraints", "gates", "measures", "overlap", "pictures", "program", "rays", "render",
        "samples", "solids", "spec", "toolchains", "verdict", "views")))
LIBRARIES = ("embreex", "manifold3d", "numpy", "pillow", "scipy")


class SceneVerifier:
    name = "scene"

    @property
    def digest(self) -> str:
        return code_digest(MODULES, {name: _version(name) for name in LIBRARIES})

    def verify(self, submission: Submission, task: Task, context: Context) -> Score:
        """Components: one per gate (0 or 1), one per declared constraint (share of it that holds), one per metric of
        the comparison and their mean."""
        hidden = hidden_of(task)
        components: dict[str, float] = {}
        evidence: dict[str, Any] = {"mesh": hidden.mesh, "wanted": wanted_of(hidden)}
        reference = reference_of(hidden.comparison, context.artifacts) if hidden.comparison else None
        if hidden.toolchain:
            made = make(submission, task, hidden, hidden.toolchain, context)
            sandbox, evidence["toolchain"] = made.sandbox, made.evidence
            components |= made.gates
        else:
            sandbox = context.open_sandbox(submission, task)
        try:
            data = read_submitted(sandbox, hidden.mesh, max_bytes(hidden.max_triangles))
            mesh = parse_mesh(data, hidden.mesh, hidden.max_triangles)
        except (NotSubmitted, MeshError) as wrong:
            return Score(reward=0.0, components={**components, "loads": 0.0},
                         evidence={**evidence, "problem": str(wrong)})
        finally:
            sandbox.close()
        return _judged(mesh, reference, hidden, {**components, "loads": 1.0}, evidence, task, context)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _judged(mesh: Mesh, reference: Mesh | None, hidden: SceneHidden, components: dict[str, float],
            evidence: dict[str, Any], task: Task, context: Context) -> Score:
    if reference and hidden.comparison:
        mesh = aligned(mesh, reference, hidden.comparison.align)
    edges = edges_of(mesh)
    measures = measure(mesh, edges)
    covered = overlap(mesh) if measures.closed else None
    barred = {name: value for name, value in components.items() if name != "clean"}
    barred |= gates(measures, covered, hidden)
    evidence |= {"measured": measures._asdict(), "overlap": covered._asdict() if covered else None,
                 "defects": defects(mesh, edges, measures, covered, hidden)}
    loose = mesh.points[edges.ends[edges.faces == 1]]
    evidence["pictures"] = pictures.keep(mesh, reference, loose, f"{task.task_id}: {hidden.mesh}",
                                         evidence["defects"], context.artifacts)
    components |= barred
    if not all(barred.values()):
        evidence["failed"] = sorted(name for name, value in barred.items() if not value)
        return Score(reward=0.0, components=components, evidence=evidence)
    notes: dict[str, Any] = {}
    shares = held(mesh, measures, hidden, notes)
    metrics = dict(compare(mesh, reference, hidden.comparison, notes)) if reference and hidden.comparison else {}
    counted = [*shares.values(), *([metrics["comparison"]] if metrics else [])]
    return Score(reward=sum(counted) / len(counted), components={**components, **shares, **metrics},
                 evidence={**evidence, "found": notes})
