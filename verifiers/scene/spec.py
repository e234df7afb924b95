"""What a scene task hides: the constraints, the reference and the program's toolchain, as data (`task.hidden`). A
misspelt name is an error.

Places are measured from the lowest corner of the model's bounding box, so it does not matter where a model stands.
"""

from __future__ import annotations

from typing import Any

import msgspec

from schemas.errors import VerifierError
from tasks.task import Task
from verifiers.scene.formats import PARSERS
from verifiers.scene.mesh import MAX_TRIANGLES, Point

CONSTRAINTS = ("extents", "volume", "area", "euler", "holes", "centroid", "probes", "distances", "symmetry")
WEIGHTS = {"iou": 0.5, "chamfer": 0.1, "fscore": 0.1, "silhouette": 0.1, "depth": 0.1, "normals": 0.1}
VIEWS = (6, 8, 14)


class Toolchain(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the model is made again from the submitted program."""

    name: str = "command"
    """`openscad`, `build123d`, or `command`: `argv` as it stands."""
    argv: list[str] = []
    program: str = ""
    """Path of the program, for `openscad` and `build123d`."""
    variable: str = ""
    """build123d: which variable holds the model; empty: the largest solid of the program's variables."""
    deadline_s: float = 30.0
    hardwarnings: bool = False
    """A warning fails the gate, as OpenSCAD's own --hardwarnings does; else it only shows in component `clean`."""


class Probes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    inside: list[Point] = []
    outside: list[Point] = []


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A ray, and the distances at which it must meet the surface: walls, holes, gaps."""

    start: Point
    along: Point
    at: list[float]


class Reference(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The wanted model: text or bytes of a mesh file, or the digest of one in the artifact store."""

    format: str
    text: str = ""
    data: bytes = b""
    artifact: str = ""


class Comparison(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reference: Reference
    align: str = "corner"
    """`corner`: lowest corners coincide; `centre`: middles of the bounding boxes; `none`: as the files say."""
    weights: dict[str, float] = {}
    """Empty: WEIGHTS."""
    enough: float = 0.995
    """A metric of this much counts as 1: two tessellations of one curved shape are never quite equal."""
    tau: float = 0.01
    """Distance within which a point counts for the F-score, as a share of the reference's diagonal."""
    samples: int = 4096
    views: int = 14


class SceneHidden(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mesh: str
    """Path of the model; its ending is the format."""
    tolerance: float = 1e-3
    """Relative; for `centroid`, `distances` and `symmetry` relative to the diagonal or to the volume."""
    bodies: int = 1
    cavities: int = 0
    max_triangles: int = MAX_TRIANGLES
    overlap: float = 1e-3
    """Largest share of the volume that may be covered more than once."""
    extents: Point | None = None
    volume: float | None = None
    area: float | None = None
    euler: int | None = None
    holes: int | None = None
    """Through holes and handles (the genus) of all bodies together."""
    centroid: Point | None = None
    probes: Probes | None = None
    distances: list[Line] | None = None
    symmetry: str | None = None
    """Axes across which the model is its own mirror image about the middle of its bounding box: `x`, `xz`, ..."""
    comparison: Comparison | None = None
    toolchain: Toolchain | None = None


def hidden_of(task: Task) -> SceneHidden:
    """Raises VerifierError where the task, not the candidate, is at fault."""
    where = f"task {task.task_id}"
    try:
        hidden = msgspec.convert(task.hidden, SceneHidden)
    except msgspec.ValidationError as wrong:
        raise VerifierError(f"the task's hidden part is wrong: {wrong}", where=where) from None
    fault = _fault(hidden)
    if fault:
        raise VerifierError(fault, where=where)
    return hidden


def wanted_of(hidden: SceneHidden) -> dict[str, Any]:
    """What a model is measured against, for people; the reference it is compared with is in the pictures."""
    named = ("bodies", "cavities", "tolerance", *CONSTRAINTS)
    return {name: msgspec.to_builtins(value) for name in named if (value := getattr(hidden, name)) is not None}


def _fault(hidden: SceneHidden) -> str:
    compared, made = hidden.comparison, hidden.toolchain
    ending = hidden.mesh.rpartition(".")[2].lower()
    if ending not in PARSERS:
        return f"models in .{ending[:20]} are not judged; a task asks for one of {', '.join(PARSERS)}"
    if compared is None and all(getattr(hidden, name) is None for name in CONSTRAINTS):
        return "a scene task declares no constraint and no comparison"
    if hidden.probes is not None and not (hidden.probes.inside or hidden.probes.outside):
        return "probes without a point"
    if hidden.distances is not None and not hidden.distances:
        return "distances without a line"
    if hidden.symmetry is not None and not (hidden.symmetry and set(hidden.symmetry) <= set("xyz")):
        return "symmetry names no axes of x, y, z"
    if compared and (compared.views not in VIEWS or compared.align not in ("corner", "centre", "none")):
        return f"a comparison has {VIEWS} views and aligns by corner, centre or none"
    if compared and (not set(compared.weights) <= set(WEIGHTS) or min(compared.weights.values(), default=1) < 0
                     or sum(compared.weights.values()) <= 0 < len(compared.weights)):
        return f"a comparison weighs {', '.join(WEIGHTS)}"
    if compared and compared.reference.format not in PARSERS:
        return f"a reference is one of {', '.join(PARSERS)}"
    if made and made.name not in ("command", "openscad", "build123d"):
        return f"unknown toolchain {made.name!r}; there are command, openscad and build123d"
    if made and not (made.argv if made.name == "command" else made.program):
        return "a toolchain needs its argv, or the path of its program"
    return ""
