"""What a task asks of a model, each as the share of it that holds."""

from __future__ import annotations

import math
from typing import Any

from verifiers.scene import solids
from verifiers.scene.measures import Measures, crossings, winding
from verifiers.scene.mesh import Mesh, Point
from verifiers.scene.spec import Line, Probes, SceneHidden

INSIDE = 0.5


def held(mesh: Mesh, measures: Measures, hidden: SceneHidden, notes: dict[str, Any]) -> dict[str, float]:
    """Shares by name, for a model that passed its gates; `notes` gets what was measured beyond `measures`."""
    found: dict[str, float] = {}
    reach = hidden.tolerance * math.dist((0, 0, 0), measures.extents)
    if hidden.extents is not None:
        pairs = zip(measures.extents, hidden.extents, strict=True)
        found["extents"] = sum(_near(got, want, hidden.tolerance) for got, want in pairs) / 3
        if unit := unit_slip(measures.extents, hidden.extents):
            notes["units"] = unit
    if hidden.volume is not None:
        found["volume"] = float(_near(measures.volume, hidden.volume, hidden.tolerance))
    if hidden.area is not None:
        found["area"] = float(_near(measures.area, hidden.area, hidden.tolerance))
    if hidden.euler is not None:
        found["euler"] = float(measures.euler == hidden.euler)
    if hidden.holes is not None:
        notes["holes"] = measures.bodies - measures.euler // 2
        found["holes"] = float(notes["holes"] == hidden.holes)
    if hidden.centroid is not None:
        found["centroid"] = float(math.dist(measures.centroid, hidden.centroid) <= reach)
    if hidden.probes is not None:
        found["probes"] = _probed(mesh, measures.corner, hidden.probes)
    if hidden.distances is not None:
        notes["distances"] = [_met(mesh, measures.corner, line) for line in hidden.distances]
        found["distances"] = _distances(notes["distances"], hidden.distances, reach)
    if hidden.symmetry is not None:
        notes["symmetry"] = {axis: _symmetry(mesh, "xyz".index(axis)) for axis in hidden.symmetry}
        right = [value >= 1 - hidden.tolerance for value in notes["symmetry"].values()]
        found["symmetry"] = sum(right) / len(right)
    return found


def _near(got: float, want: float, tolerance: float) -> bool:
    return abs(got - want) <= tolerance * abs(want)


def unit_slip(got: Point, want: Point) -> str:
    """A name for a model that is right but for its unit of length; empty otherwise."""
    ratios = [a / b for a, b in zip(got, want, strict=True) if b]
    if len(ratios) < 3 or max(ratios) > 1.01 * min(ratios):
        return ""
    for factor, name in ((1000.0, "1000"), (25.4, "25.4 (inches and millimetres)"), (100.0, "100"), (10.0, "10")):
        for sign, word in ((1, "large"), (-1, "small")):
            if abs(math.log(ratios[0] / factor**sign)) < 0.01:
                return f"scaled units: the model is too {word} by a factor of {name} along every axis"
    return ""


def _from(corner: Point, place: Point) -> Point:
    return (corner[0] + place[0], corner[1] + place[1], corner[2] + place[2])


def _probed(mesh: Mesh, corner: Point, probes: Probes) -> float:
    """Share of the probes on the right side of the surface."""
    wanted = [(point, True) for point in probes.inside] + [(point, False) for point in probes.outside]
    right = sum((winding(mesh, _from(corner, point)) > INSIDE) == inside for point, inside in wanted)
    return right / len(wanted)


def _met(mesh: Mesh, corner: Point, line: Line) -> list[float]:
    return [round(value, 9) for value in crossings(mesh, _from(corner, line.start), line.along)]


def _distances(found: list[list[float]], lines: list[Line], reach: float) -> float:
    """Share of the lines that meet the surface where they should, and nowhere else."""
    right = sum(len(got) == len(line.at)
                and all(abs(a - b) <= reach for a, b in zip(got, sorted(line.at), strict=True))
                for got, line in zip(found, lines, strict=True))
    return right / len(lines)


def _symmetry(mesh: Mesh, axis: int) -> float:
    """How much of the model its mirror image covers (IoU)."""
    found = solids.shared(mesh, solids.mirrored(mesh, axis))
    return round(found.iou, 9) if found else 0.0
