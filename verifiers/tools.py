"""Verdicts on tool tasks: is the wanted state there, was it handed in, and how clean was the way.

reward = content x (1 if the policy called `done`, else 0.5) x 0.9 for each call that went wrong.
`task.hidden`: `family` and `out`; for `calc`, `field` and `chain` also `want`, the text that `out` must hold; for `box`
`width`, `depth` and `volume` of the mesh in `out` (0.15 for each right extent, 0.7 for the volume of a closed mesh).
Keys beside these are for others.
"""

from __future__ import annotations

from typing import Any

import msgspec

from schemas.enums import ToolStatus
from schemas.errors import VerifierError
from tasks.task import Submission, Task
from verifiers.digest import code_digest
from verifiers.scene import formats
from verifiers.scene.measures import measure
from verifiers.scene.mesh import MeshError
from verifiers.submitted import NotSubmitted, read_submitted
from verifiers.verifier import Context, Score

MODULES = ("verifiers.tools", "verifiers.scene", *formats.MODULES, "verifiers.scene.measures", "verifiers.submitted")
TEXT_LIMIT = 4096
MESH_LIMIT = 64 << 10
UNFINISHED, ERROR_FACTOR = 0.5, 0.9
EXTENT_SHARE, VOLUME_SHARE = 0.15, 0.7
VOLUME_TOLERANCE = 1e-6


class TextHidden(msgspec.Struct, frozen=True, kw_only=True):
    out: str
    want: str


class BoxHidden(msgspec.Struct, frozen=True, kw_only=True):
    out: str
    width: float
    depth: float
    volume: float


class ToolsVerifier:
    name = "tools"

    @property
    def digest(self) -> str:
        return code_digest(MODULES)

    def verify(self, submission: Submission, task: Task, context: Context) -> Score:
        """Components `content`, `finished`, `clean`: their product is the reward."""
        hidden = _hidden(task)
        sandbox = context.open_sandbox(submission, task)
        try:
            if isinstance(hidden, BoxHidden):
                content, details = _box(read_submitted(sandbox, hidden.out, MESH_LIMIT), hidden)
            else:
                content, details = _text(read_submitted(sandbox, hidden.out, TEXT_LIMIT), hidden)
        except NotSubmitted as wrong:
            content, details = 0.0, {"problem": str(wrong)}
        errors = sum(call.status != ToolStatus.OK for call in submission.calls)
        finished = any(call.tool == "done" and call.status == ToolStatus.OK for call in submission.calls)
        components = {"content": content, "finished": 1.0 if finished else UNFINISHED, "clean": ERROR_FACTOR**errors}
        return Score(reward=content * components["finished"] * components["clean"], components=components,
                     evidence={"out": hidden.out, "calls": len(submission.calls), "errors": errors, **details})


def _hidden(task: Task) -> TextHidden | BoxHidden:
    shape: type[TextHidden] | type[BoxHidden] = BoxHidden if task.hidden.get("family") == "box" else TextHidden
    try:
        return msgspec.convert(task.hidden, shape)
    except msgspec.ValidationError as wrong:
        raise VerifierError(f"the task's hidden part is wrong: {wrong}", where=f"task {task.task_id}") from None


def _text(data: bytes, hidden: TextHidden) -> tuple[float, dict[str, Any]]:
    got = data.decode(errors="replace").strip()
    return float(got == hidden.want), {"got": got, "want": hidden.want}


def _box(data: bytes, hidden: BoxHidden) -> tuple[float, dict[str, Any]]:
    want = {"width": hidden.width, "depth": hidden.depth, "volume": hidden.volume}
    try:
        measures = measure(formats.parse_mesh(data, hidden.out))
    except MeshError as wrong:
        return 0.0, {"problem": str(wrong), "want": want}
    solid = measures.closed and measures.consistent
    parts = {"width": EXTENT_SHARE * (measures.extents[0] == hidden.width),
             "depth": EXTENT_SHARE * (measures.extents[1] == hidden.depth),
             "volume": VOLUME_SHARE * (solid and abs(measures.volume - hidden.volume) < VOLUME_TOLERANCE)}
    return sum(parts.values()), {"want": want, "parts": parts, "measured": measures._asdict()}
