"""Views of a mesh by casting parallel rays (Embree on the processor: no GPU, no display, the same picture each time).

A camera looks at a ball; what it sees is which ray hits, how deep, and which way the surface faces there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from schemas.errors import UnavailableError
from verifiers.scene.measures import cross, dot
from verifiers.scene.mesh import Floats, Mesh, Point

HINT = "pip install 'headrace[scene]'"
_NEAR = 1e-5
_OFF_CENTRE = (0.5137, 0.4871)
"""Where in its pixel a ray goes through: off the places where models have their edges."""


class Frame(NamedTuple):
    """The ball that all cameras of one picture look at."""

    centre: Floats
    radius: float


class Shot(NamedTuple):
    """One view, a row of the image after another from its top. Depth in radii from the camera, 0 to 2."""

    hit: npt.NDArray[np.bool_]
    depth: npt.NDArray[np.float32]
    normal: npt.NDArray[np.float32]
    """Unit vectors in the camera's axes: right, up, towards the camera. Negative there: a face seen from behind."""
    face: npt.NDArray[np.int32]


def frame_of(*meshes: Mesh) -> Frame:
    low = np.min([mesh.points.min(axis=0) for mesh in meshes], axis=0)
    high = np.max([mesh.points.max(axis=0) for mesh in meshes], axis=0)
    return Frame((low + high) / 2, float(np.linalg.norm(high - low)) / 2 or 1.0)


def camera_axes(towards: Point) -> Floats:
    """Rows: right, up, and the direction from the model to the camera."""
    back = np.array(towards, dtype=np.float64)
    back = back / np.linalg.norm(back)
    up = np.array([0.0, 0.0, 1.0]) if abs(back[2]) < 0.99 else np.array([0.0, 1.0, 0.0])
    right = np.cross(up, back)
    right = right / np.linalg.norm(right)
    return np.array([right, np.cross(back, right), back])


class Caster:
    """A mesh in Embree's index, in the units of a frame."""

    def __init__(self, mesh: Mesh, frame: Frame) -> None:
        try:
            from embreex.mesh_construction import TriangleMesh
            from embreex.rtcore_scene import EmbreeScene
        except ImportError:
            raise UnavailableError("views cannot be made: embreex is not installed", hint=HINT) from None
        self._scene = EmbreeScene()
        self._points = points = ((mesh.points - frame.centre) / frame.radius).astype(np.float32)
        TriangleMesh(self._scene, points, mesh.triangles.astype(np.int32))
        a, b, c = mesh.corners()
        normal = cross(b - a, c - a)
        length = np.sqrt(dot(normal, normal))
        self._normals = normal / np.where(length > 0, length, 1.0)[:, None]

    def shoot(self, axes: Floats, pixels: int, zoom: float = 1.0, start: float = 2.0) -> Shot:
        """A square view of the whole frame; `zoom` below 1 leaves a margin. `start`: how far in front of the middle
        the rays begin, in radii; at 0 they show a cut, and what they see from behind is matter that was cut."""
        steps = (np.arange(pixels) + _OFF_CENTRE[0]) / pixels * 2 - 1
        down = (np.arange(pixels) + _OFF_CENTRE[1]) / pixels * 2 - 1
        rows, columns = self._window(-axes[1], down / zoom), self._window(axes[0], steps / zoom)
        inside = (rows.stop - rows.start, columns.stop - columns.start)
        starts = np.empty((*inside, 3), dtype=np.float32)
        starts[:] = ((steps / zoom)[None, columns, None] * axes[0] - (down / zoom)[rows, None, None] * axes[1]
                     + start * axes[2])
        along = np.empty((inside[0] * inside[1], 3), dtype=np.float32)
        along[:] = -axes[2]
        found = self._scene.run(starts.reshape(-1, 3), along, output=True)
        face = np.full((pixels, pixels), -1, dtype=np.int32)
        face[rows, columns] = found["primID"].reshape(inside)
        depth = np.zeros((pixels, pixels), dtype=np.float32)
        depth[rows, columns] = found["tfar"].reshape(inside) + np.float32(1 - start)
        depth[face < 0] = 0
        turned = np.zeros((len(self._normals) + 1, 3), dtype=np.float32)
        for column, axis in enumerate(axes):
            turned[:-1, column] = (self._normals * axis).sum(axis=1)
        return Shot(face >= 0, depth, turned[face], face)

    def _window(self, axis: Floats, places: Floats) -> slice:
        """Rows or columns of rays that can meet the model at all."""
        along = (self._points * axis).sum(axis=1)
        first, last = np.searchsorted(places, [along.min() - _NEAR, along.max() + _NEAR])
        start = min(int(first), len(places) - 1)
        return slice(start, max(int(last), start + 1))
