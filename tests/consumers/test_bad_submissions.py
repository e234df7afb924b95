"""What a policy may hand in to break its verifier: each is judged and worth 0, says why, and the consumer goes on.

What the task or its verifier is to blame for is no 0.
"""

from __future__ import annotations

import importlib.util
import io
import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from sandboxes.sandbox import SandboxSpec
from sandboxes.snapshot import store_files
from schemas.enums import ScoreStatus
from tasks.shapes import box, obj
from tasks.task import Task
from tests.conftest import require_real
from tests.consumers.judged import Judged
from tests.verifiers.scene_files import RELS, package
from tests.verifiers.test_documents_files import bomb, locked, pdf, written
from verifiers.case import SUBMISSION_BYTES

DONE = [("done", "ok")]
FIELDS = {"total": {"type": "money", "want": "7.50"}}


def tools(out: str = "out.txt") -> Task:
    return Task(task_id="tools", kind="tools", set="s", prompt="p", hidden={"family": "calc", "out": out, "want": "42"})


def documents(path: str = "", **hidden: object) -> Task:
    return Task(task_id="documents", kind="documents", set="s", prompt="p", files={"broken.pdf": b"%PDF-1.7\n"},
                hidden={"fields": FIELDS, "path": path, **hidden})


def scene(mesh: str) -> Task:
    return Task(task_id="scene", kind="scene", set="s", prompt="p", hidden={"mesh": mesh, "volume": 48})


def function(**hidden: object) -> Task:
    return Task(task_id="coding", kind="coding", set="s", prompt="p", hidden={
        "entry": "f", "deadline_s": 1.0, "budget_s": 2.0, **(hidden or {"tests": [{"args": [1], "want": 2}]})})


def program(**hidden: object) -> Task:
    return Task(task_id="stdio", kind="coding", set="s", prompt="p", hidden={
        "stdio": {"tests": [{"input": "1\n", "output": "2\n"}], "deadline_s": 1.0, **hidden}})


class Bad(NamedTuple):
    task: Task
    told: str
    files: Mapping[str, bytes | str] = MappingProxyType({})
    links: Mapping[str, str] = MappingProxyType({})
    answer: str | None = None


def recursive_pdf() -> bytes:
    """A page tree whose node is its own child."""
    return pdf(b"").replace(b"/Kids [4 0 R]", b"/Kids [2 0 R]")


def many_pages() -> bytes:
    """One page, ten thousand times in its tree."""
    return pdf(b"").replace(b"/Kids [4 0 R] /Count 1", b"/Kids [" + b"4 0 R " * 10_000 + b"] /Count 10000")


def zeros(size: int) -> Iterator[bytes]:
    for _ in range(size >> 20):
        yield bytes(1 << 20)


def zipped(parts: Iterable[bytes]) -> bytes:
    """A 3MF package with a model of these parts."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("_rels/.rels", RELS.format("/3D/model.model"))
        with archive.open("3D/model.model", "w", force_zip64=True) as entry:
            for part in parts:
                entry.write(part)
    return out.getvalue()


def spinning(*lines: str) -> dict[str, bytes | str]:
    return {"solution.py": "\n".join(["def f(n):", *(f"    {line}" for line in lines), ""])}


CALLS = Task(task_id="calls", kind="tools", verifier="calls", set="s", prompt="p", hidden={
    "functions": [{"name": "f", "parameters": {}}], "turns": [[{"name": "f", "arguments": {}}]]})
MATHS = Task(task_id="math", kind="math", set="s", prompt="p", hidden={"want": "1/3"})
DEEP = "[" * 100_000 + "]" * 100_000
POLICYS: dict[str, Callable[[], Bad]] = {
    "link to a file of the host": lambda: Bad(tools(), "out of the workspace", links={"out.txt": "/etc/passwd"}),
    "link to its verifier": lambda: Bad(function(), "out of the workspace", links={"solution.py": "/proc/self/exe"}),
    "link of a document": lambda: Bad(documents("out.json"), "out of the workspace", links={"out.json": "/etc/shadow"}),
    "link of a mesh": lambda: Bad(scene("a.stl"), "out of the workspace", links={"a.stl": "/dev/zero"}),
    "mesh with NaN": lambda: Bad(scene("a.obj"), "finite", {"a.obj": obj(box(2, 4, 6)).replace("v 2", "v nan", 1)}),
    "mesh with infinity": lambda: Bad(scene("a.obj"), "finite", {"a.obj": obj(box(2, 4, 6)).replace("v 2", "v 1e999")}),
    "zip bomb": lambda: Bad(scene("a.3mf"), "", {"a.3mf": zipped(zeros(1 << 30))}),
    "zip bomb in a zip": lambda: Bad(scene("a.3mf"), "", {"a.3mf": zipped([zipped([zipped(zeros(1 << 28))])])}),
    "zip with entities": lambda: Bad(scene("a.3mf"), "", {"a.3mf": package(
        b'<!DOCTYPE m [<!ENTITY a "aaaaaaaaaa">' + b"".join(
            b'<!ENTITY a%d "%s">' % (n, b"&a%s;" % (b"%d" % (n - 1) if n else b"") * 10) for n in range(9))
        + b"]><model>&a8;</model>")}),
    "PDF that is none": lambda: Bad(documents("o.pdf"), "not a PDF", {"o.pdf": b'{"total": 7.5}'}),
    "PDF that is a zip bomb": lambda: Bad(documents("o.pdf"), "cannot be", {"o.pdf": bomb()}),
    "PDF that is locked": lambda: Bad(documents("o.pdf"), "encrypted", {"o.pdf": locked()}),
    "PDF of 10,000 pages": lambda: Bad(documents("o.pdf"), "pages", {"o.pdf": many_pages()}),
    "PDF in itself": lambda: Bad(documents("o.pdf"), "", {"o.pdf": recursive_pdf()}),
    "PDF that is cut": lambda: Bad(documents("o.pdf"), "cannot be read", {"o.pdf": written("7.5")[:300]}),
    "deep JSON": lambda: Bad(documents(), "", answer=DEEP),
    "deep JSON in a file": lambda: Bad(documents("o.json"), "", {"o.json": DEEP[:60_000]}),
    "deep JSON of calls": lambda: Bad(CALLS, "", answer=DEEP),
    "deep mathematics": lambda: Bad(MATHS, "", answer="\\frac{" * 20_000),
    "test that never ends": lambda: Bad(function(), "timeout", spinning("while True: pass")),
    "import that never ends": lambda: Bad(function(), "load", {"solution.py": "while True: pass\n"}),
    "sleep in a finalizer": lambda: Bad(function(), "timeout", spinning(
        "class Never:", "    def __index__(self):", "        while True: pass", "return int('1', Never())")),
    "program that never ends": lambda: Bad(program(), "too slow", {"solution.py": "while True: pass\n"}),
    "gigabyte of output": lambda: Bad(program(deadline_s=30.0), "too much output", {
        "solution.py": "import sys\nfor _ in range(1024):\n    sys.stdout.write('x' * (1 << 20))\n"}),
    "gigabyte of a value": lambda: Bad(function(), "", spinning("return 'x' * (200 << 20)")),
    "fork bomb": lambda: Bad(function(), "", spinning("import os", "while True:", "    try: os.fork()",
                                                      "    except OSError: pass")),
    "memory": lambda: Bad(function(), "", spinning("data = []", "while True: data.append(bytearray(16 << 20))")),
    "deep value": lambda: Bad(function(), "unencodable", spinning(
        "value = []", "for _ in range(100_000): value = [value]", "return value")),
    "its runner killed": lambda: Bad(function(), "", spinning("import os", "os.kill(os.getppid(), 9)")),
    "everything killed": lambda: Bad(program(), "", {"solution.py": "import os\nos.kill(-1, 9)\nos.kill(1, 9)\n"}),
}
TASKS: dict[str, Callable[[], Bad]] = {
    "check that never ends": lambda: Bad(function(check="def check(f):\n    while True: pass\n"), "did not end well",
                                         spinning("return n + 1")),
    "check that asserts nothing": lambda: Bad(function(check="def check(f):\n    pass\n"), "asserts nothing",
                                              spinning("return n + 1")),
    "source that is no PDF": lambda: Bad(documents(sources=["broken.pdf"]), "of the task cannot be read",
                                         answer='{"total": 7.5}'),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    for name in ("pypdf", "scipy", "math_verify", "manifold3d"):
        if importlib.util.find_spec(name) is None:
            require_real(name, "the extras of verifiers are not installed")
    home = Judged(tmp_path_factory.mktemp("bad"), workers=2)
    yield home
    home.close()


def hand_in(home: Judged, bad: Bad) -> str:
    sandbox = home.rig.backend.acquire(SandboxSpec(files=bad.task.files))
    try:
        for path, content in bad.files.items():
            sandbox.write(path, content.encode() if isinstance(content, str) else content)
        for path, target in bad.links.items():
            sandbox.exec(["ln", "-s", target, path])
        return home.rig._store(bad.task, sandbox.snapshot(), bad.answer, [])
    finally:
        sandbox.close()


def test_what_a_policy_breaks_is_worth_nothing_and_says_why(home: Judged) -> None:
    bad = {name: make() for name, make in POLICYS.items()}
    found = home.verdicts({name: hand_in(home, one) for name, one in bad.items()})
    for name, one in bad.items():
        score, why = found[name], home.why(found[name])
        assert (score.status, score.reward) == (ScoreStatus.OK, 0.0), (name, why[:2000])
        assert one.told in why, (name, why[:2000])
        assert "root:" not in why
    assert home.verdicts({"after all": hand_in(home, Bad(tools(), "", {"out.txt": "42"}))})["after all"].reward == 0.5


def test_what_a_task_breaks_is_no_zero(home: Judged) -> None:
    bad = {name: make() for name, make in TASKS.items()}
    found = home.verdicts({name: hand_in(home, one) for name, one in bad.items()})
    for name, one in bad.items():
        score, why = found[name], home.why(found[name])
        assert (score.status, score.reward) == (ScoreStatus.VERIFIER_ERROR, None), (name, why[:2000])
        assert one.told in why, (name, why[:2000])


def test_a_workspace_of_a_hundred_thousand_files_is_judged(home: Judged) -> None:
    files = {f"{number // 1000}-{number}": b"" for number in range(100_000)}
    workspace = store_files({**files, "out.txt": b"42"}, home.rig.artifacts)
    score = home.verdicts({"many": home.rig._store(tools(), workspace, None, [])})["many"]
    assert score.components["content"] == 1.0


def test_an_answer_beyond_all_measure_is_worth_nothing_and_not_looked_at(home: Judged) -> None:
    """And what is just below is read, and wrong."""
    large = home.rig.hand_in(documents(), answer="x" * (SUBMISSION_BYTES + 1))
    fitting = home.rig.hand_in(documents(), answer="x" * (64 << 20))
    found = home.verdicts({"large": large, "fitting": fitting})
    for name, told in (("large", "over the limit"), ("fitting", "longer than")):
        assert (found[name].status, found[name].reward) == (ScoreStatus.OK, 0.0)
        assert told in home.why(found[name]) and found[name].verifier == "documents"
    assert found["large"].task_id == "documents"


def test_bytes_that_are_no_submission_are_no_zero(home: Judged) -> None:
    damaged = [b"\xc1", b"", b"\x93" * 100_000, json.dumps({"task_id": 1}).encode()]
    found = home.verdicts({f"damaged-{number}": home.rig.artifacts.put(data).digest
                           for number, data in enumerate(damaged)})
    statuses: set[Any] = {(score.status, score.reward) for score in found.values()}
    assert statuses == {(ScoreStatus.VERIFIER_ERROR, None)} and len(found) == len(damaged)
