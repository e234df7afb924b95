"""Shaded pictures of models as arrays of colours: one view of one model, or of what separates two.

Drawn at twice the size and averaged. Faces that are seen from behind are red: in a sound model there are none.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from verifiers.scene.mesh import Floats
from verifiers.scene.rays import Caster, Shot

Plane = npt.NDArray[np.float32]
Image = npt.NDArray[np.uint8]
Colour = tuple[float, float, float]
PAPER: Colour = (255, 255, 255)
INK: Colour = (46, 52, 64)
INK_BYTES = (46, 52, 64)
SUBMITTED: Colour = (104, 144, 190)
WANTED: Colour = (178, 172, 158)
BEHIND: Colour = (206, 60, 60)
COMMON: Colour = (214, 214, 210)
SURPLUS: Colour = (52, 110, 205)
MISSING: Colour = (222, 128, 30)
CUT: Colour = (236, 196, 92)
_CUT_AT = 0.00731
"""Just beside the middle, where models like to have faces."""
_LIGHT = np.array([-0.35, 0.45, 0.82], dtype=np.float32)
_FINE = 2
_CREASE = 0.9
"""Cosine between neighbouring faces below which a line is drawn."""
_STEP = 0.03
_SAME = 0.008
"""Difference of depth, in radii, that is the same surface."""
ZOOM = 0.92


def shoot(caster: Caster, axes: Floats, pixels: int, cut: bool = False) -> Shot:
    return caster.shoot(axes, _FINE * pixels, ZOOM, _CUT_AT if cut else 2.0)


def shaded(shot: Shot, colour: Colour, cut: bool = False) -> Image:
    """One model. `cut`: what is seen from behind is where it was cut."""
    behind = (shot.normal[..., 2] < 0)[..., None]
    picture = _lit(shot, np.where(behind, _paint(BEHIND), _paint(colour)))
    if cut:
        picture = np.where(behind, _paint(CUT), picture)
    return _reduced(_lined(picture, shot))


def difference(got: Shot, want: Shot) -> Image:
    """Two models in one place: grey where both show the same surface, else whichever lies in front."""
    both = got.hit & want.hit
    nearer = got.depth - want.depth
    surplus = (got.hit & ~want.hit) | (both & (nearer < -_SAME))
    missing = (want.hit & ~got.hit) | (both & (nearer > _SAME))
    shown = Shot(got.hit | want.hit, np.where(missing, want.depth, got.depth),
                 np.where(missing[..., None], want.normal, got.normal), np.where(missing, -2 - want.face, got.face))
    colours = np.where(surplus[..., None], _paint(SURPLUS),
                       np.where(missing[..., None], _paint(MISSING), _paint(COMMON)))
    return _reduced(_lined(_lit(shown, colours), shown))


def _paint(colour: Colour) -> Plane:
    return np.array(colour, dtype=np.float32)


def _lit(shot: Shot, colours: Plane) -> Plane:
    x, y, z = np.moveaxis(shot.normal, 2, 0)
    light = x * _LIGHT[0] + y * _LIGHT[1] + z * _LIGHT[2]
    bright = np.float32(0.52) + np.float32(0.54) * np.clip(np.where(z < 0, -light, light), 0, 1)
    return np.where(shot.hit[..., None], np.minimum(colours * bright[..., None], 255), _paint(PAPER))


def _lined(picture: Plane, shot: Shot) -> Plane:
    """Outlines and creases."""
    edge = np.zeros(shot.hit.shape, dtype=bool)
    x, y, z = np.moveaxis(shot.normal, 2, 0)
    for axis in (0, 1):
        here, there = [slice(None)] * 2, [slice(None)] * 2
        here[axis], there[axis] = slice(None, -1), slice(1, None)
        one, other = tuple(here), tuple(there)
        both = shot.hit[one] & shot.hit[other]
        crease = (x[one] * x[other] + y[one] * y[other] + z[one] * z[other] < _CREASE) & (
            shot.face[one] != shot.face[other])
        step = np.abs(shot.depth[one] - shot.depth[other]) > _STEP
        found = (shot.hit[one] ^ shot.hit[other]) | (both & (crease | step))
        edge[one] |= found
        edge[other] |= found
    picture[edge] = np.float32(0.35) * picture[edge] * shot.hit[edge][:, None] + np.float32(0.65) * _paint(INK)
    return picture


def _reduced(picture: Plane) -> Image:
    total = sum(picture[down::_FINE, across::_FINE] for down in range(_FINE) for across in range(_FINE))
    image: Image = np.round(total / np.float32(_FINE * _FINE)).astype(np.uint8)
    return image
