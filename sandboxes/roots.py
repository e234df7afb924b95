"""What a spec's sandboxes see as `/`: an image by its reference, the layer of its set-up, the network's names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from artifacts.store import ArtifactStore
from sandboxes.environment import BASE
from sandboxes.images import Image, Images
from sandboxes.layers import Layers, Start
from sandboxes.restore import Owner
from sandboxes.sandbox import HOST, SandboxSpec

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Of an image that says nothing of its own."""


class Roots:
    """Images and layers in a home, as one backend uses them."""

    def __init__(self, root: Path, artifacts: ArtifactStore, owner: Owner, start: Start) -> None:
        self.images = Images(root / "images", owner)
        self.layers = Layers(root / "layers", artifacts, owner, start)

    def identify(self, reference: str) -> str:
        """What events call this image."""
        return self.images.take(reference).digest if reference else HOST

    def resolve(self, spec: SandboxSpec, half: Path | None = None) -> tuple[SandboxSpec, dict[str, Any] | None]:
        """The spec with what image and set-up add to it, and what the spawner is told; None: the shared view does.

        `half`: where all that is written to the root is to be kept. Raises SandboxError (kinds `image`, `setup`).
        """
        if not (spec.image or spec.setup or spec.network == "host" or half):
            return spec, None
        image = self.images.take(spec.image) if spec.image else None
        if image:
            spec = msgspec.structs.replace(spec, environment={**_environment(image), **spec.environment})
        layer = self.layers.take(spec, spec.setup, image.digest if image else "") if spec.setup else None
        if layer and spec.workspace is None:
            spec = msgspec.structs.replace(spec, workspace=layer.workspace)
        return spec, {
            "base": str(image.root) if image else "", "agent": str(image.agent) if image else "",
            "layer": str(layer.root) if layer else "", "half": str(half) if half else "",
            "network": spec.network == "host"}

    def reap(self) -> None:
        for cache in (self.images.cache, self.layers.cache):
            cache.reap()

    def close(self) -> None:
        self.layers.close()
        self.images.close()


def _environment(image: Image) -> dict[str, str]:
    """What is fixed for every sandbox, an image does not change."""
    return {"PATH": _PATH, **{name: value for name, value in image.environment.items() if name not in BASE}}
