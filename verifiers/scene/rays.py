"""Views of a mesh by casting parallel rays (Embree on the processor: no GPU, no display, the same picture each time).

A camera looks at a ball; what it sees is which ray hits, how deep, and which way the surface faces there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from schemas.errors import UnavailableError
from verifiers.scene.mesh import Floats, Mesh, Point

HINT = "pip install 'headrace[scene]'"
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
        points = ((mesh.points - frame.centre) / frame.radius).astype(np.float32)
        TriangleMesh(self._scene, points, mesh.triangles.astype(np.int32))

    def shoot(self, axes: Floats, pixels: int, zoom: float = 1.0) -> Shot:
        """A square view of the whole frame; `zoom` below 1 leaves a margin."""
        steps = (np.arange(pixels) + _OFF_CENTRE[0]) / pixels * 2 - 1
        down = (np.arange(pixels) + _OFF_CENTRE[1]) / pixels * 2 - 1
        x, y = np.meshgrid(steps / zoom, -down / zoom)
        starts = x.reshape(-1, 1) * axes[0] + y.reshape(-1, 1) * axes[1] + 2.0 * axes[2]
        along = np.broadcast_to(-axes[2], starts.shape)
        found = self._scene.run(starts.astype(np.float32), np.ascontiguousarray(along, dtype=np.float32), output=True)
        hit = found["primID"] >= 0
        normal = found["Ng"].astype(np.float64)
        length = np.sqrt((normal * normal).sum(axis=1, keepdims=True))
        turned = normal / np.where(length > 0, length, 1.0) @ axes.T
        shape = (pixels, pixels)
        return Shot(hit.reshape(shape), np.where(hit, found["tfar"] - 1.0, 0.0).astype(np.float32).reshape(shape),
                    np.where(hit[:, None], turned, 0.0).astype(np.float32).reshape(*shape, 3),
                    found["primID"].reshape(shape))
