"""Submissions that mean ill, or are just odd: status and evidence say what happened, the machine stays well."""

from __future__ import annotations

import json
import time

import pytest

from schemas.enums import ScoreStatus
from tasks.scripts import done, run
from tasks.shapes import box, obj
from tasks.task import Task
from tests.verifiers.rig import Rig

HIDDEN = {"mesh": "part.obj", "volume": 48}
TASK = Task(task_id="s", kind="scene", set="s", prompt="p", hidden=HIDDEN)
RIGHT = f"open('part.obj', 'w').write({obj(box(2, 4, 6))!r})\n"


def program_task(deadline_s: float, **hidden: object) -> Task:
    return Task(task_id="p", kind="scene", set="s", prompt="p", hidden={
        **HIDDEN, **hidden, "toolchain": {"argv": ["python3", "part.py"], "deadline_s": deadline_s}})


@pytest.mark.parametrize(("command", "said"), [
    ("true", "there is no part.obj"), ("ln -s /etc/passwd part.obj", "out of the workspace"),
    ("mkdir part.obj", "is a folder"),
    ("ln -s ../../etc/passwd part.obj", "leads out"), ("ln -s nowhere part.obj", "there is no"),
    ("mkfifo part.obj", "there is no"), ("ln -s part.obj part.obj", "links"), (": > part.obj", "the file is empty"),
    ("truncate -s 120M part.obj", "over the limit"), ("head -c 3000000 /dev/urandom > part.obj", ""),
    ("yes 'v 0 0 0' | head -c 6000000 > part.obj", "more vertices"),
    ("yes f | head -c 300000 > part.obj", "fewer than")])
def test_what_is_no_file_or_no_mesh_is_named(rig: Rig, command: str, said: str) -> None:
    score = rig.score(rig.play(TASK, [run(command), done()]))
    assert (score.status, score.reward, score.components) == (ScoreStatus.OK, 0.0, {"loads": 0.0})
    problem = rig.evidence(score)["details"]["problem"]
    assert problem and said in problem
    assert "root:" not in json.dumps(rig.evidence(score))


@pytest.mark.parametrize(("program", "said"), [
    ("while True: pass", "did not end within 3 s"),
    ("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", "did not end within 3 s"),
    ("import os\nif os.fork() == 0:\n    os.setsid()\n    while True: pass\n" + RIGHT, ""),
    ("f = open('big', 'wb')\nwhile True: f.write(bytes(1 << 20))", "exit code"),
    ("n = 0\nwhile True:\n    open(f'big{n}', 'wb').write(bytes(200 << 20)); n += 1", "exit code"),
    ("x = [bytearray(64 << 20) for _ in range(200)]", "the program"),
    ("while True: print('x' * 100_000)", "printed too much"),
    ("import os; os.symlink('/etc/passwd', 'part.obj')", ""), ("import os; os.mkdir('part.obj')", ""),
    ("import os; os.kill(os.getpid(), 9)", "the program ended")],
    ids=["endless", "forks", "leaves a child", "writes", "writes files", "memory", "prints", "link", "folder", "kills"])
def test_a_program_that_misbehaves_scores_nothing_and_says_so(rig: Rig, program: str, said: str) -> None:
    began = time.monotonic()
    made = program_task(deadline_s=3.0 if "3 s" in said else 30.0)
    score = rig.score(rig.hand_in(made, {"part.py": program, "part.obj": obj(box(2, 4, 6))}))
    details = rig.evidence(score)["details"]
    assert score.status == ScoreStatus.OK, details
    if RIGHT in program:
        assert score.reward == 1.0
    else:
        assert score.reward == 0.0 and said in details["toolchain"].get("problem", "") and details["problem"]
    assert time.monotonic() - began < 60
    assert rig.score(rig.hand_in(TASK, {"part.obj": obj(box(2, 4, 6))})).reward == 1.0


def test_a_verdict_too_short_for_the_program_is_no_zero(rig: Rig) -> None:
    submission = rig.hand_in(program_task(deadline_s=60.0), {"part.py": "while True: pass"})
    score = rig.score(submission, deadline_s=11.0)
    assert (score.status, score.reward) == (ScoreStatus.VERIFIER_ERROR, None)
    assert "shorter than the program's" in rig.evidence(score)["details"]["message"]


SEARCH = """
import os, sys
for told in ("cmdline", "environ", "mountinfo"):
    if b"SECRET" + b"-MODEL" in open("/proc/self/" + told, "rb").read():
        sys.exit(7)
for top in ("/workspace", "/tmp", "/opt", "/dev/shm", "/etc", "/run", "/var"):
    for folder, _, names in os.walk(top):
        for name in names:
            try:
                if not os.path.isfile(os.path.join(folder, name)):
                    continue
                if b"SECRET" + b"-MODEL" in open(os.path.join(folder, name), "rb").read(1 << 20):
                    sys.exit(7)
            except OSError:
                pass
"""


def test_the_reference_is_nowhere_in_the_programs_sandbox(rig: Rig) -> None:
    compared = {"reference": {"format": "obj", "text": "# SECRET-MODEL\n" + obj(box(2, 4, 6))}}
    made = program_task(deadline_s=30.0, comparison=compared)
    score = rig.score(rig.hand_in(made, {"part.py": SEARCH + RIGHT}))
    assert rig.evidence(score)["details"]["toolchain"]["exit_code"] == 0 and score.reward == 1.0


def test_a_soup_of_large_triangles_is_judged_in_time(rig: Rig) -> None:
    """They lie thousands deep on each other: nothing that a picture could show, and minutes to draw it."""
    program = """
import random, struct
dice = random.Random(1)
rows = [struct.pack("<12fH", *(dice.random() for _ in range(12)), 0) for _ in range(90_000)]
open("part.stl", "wb").write(bytes(80) + struct.pack("<I", len(rows)) + b"".join(rows))
"""
    began = time.monotonic()
    score = rig.score(rig.hand_in(program_task(deadline_s=30.0, mesh="part.stl"), {"part.py": program}))
    details = rig.evidence(score)["details"]
    assert (score.status, score.reward) == (ScoreStatus.OK, 0.0) and "simple" not in score.components
    assert "deep on each other" in details["pictures"][0]["problem"] and details["overlap"] is None
    assert details["defects"] == ["open mesh: 270000 of 270000 edges belong to one triangle only"]
    assert time.monotonic() - began < 40


def test_a_mesh_of_thousands_of_bodies_is_judged_in_time(rig: Rig) -> None:
    """Small boxes in a row, each a body on its own."""
    program = """
rows = []
for at in range(3000):
    x = at * 2
    rows += [f"v {x + a} {b} {c}" for c in (0, 1) for b in (0, 1) for a in (0, 1)]
for at in range(3000):
    n = 8 * at + 1
    for face in ((0, 2, 3, 1), (4, 5, 7, 6), (0, 1, 5, 4), (1, 3, 7, 5), (3, 2, 6, 7), (2, 0, 4, 6)):
        rows.append("f " + " ".join(str(n + corner) for corner in face))
open("part.obj", "w").write("\\n".join(rows))
"""
    score = rig.score(rig.hand_in(program_task(deadline_s=30.0), {"part.py": program}))
    details = rig.evidence(score)["details"]
    assert (score.status, score.reward) == (ScoreStatus.OK, 0.0)
    assert details["defects"][0] == "multi-body: 3000 where 1 is wanted"
    assert details["measured"]["volume"] == pytest.approx(3000)
