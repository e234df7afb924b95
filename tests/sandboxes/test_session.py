"""Sessions keep what a call leaves behind, cost a round trip, and cannot wedge their sandbox."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from artifacts.store import DirectoryStore
from sandboxes.bubblewrap import BubblewrapBackend
from sandboxes.docker_backend import DockerBackend
from sandboxes.process import ProcessBackend
from sandboxes.sandbox import Backend, ExecResult, Limits, Sandbox, SandboxSpec, Session
from schemas.errors import SandboxError, UnavailableError
from tests.conftest import require_real
from tests.sandboxes.host import wait_for_end


@pytest.fixture(scope="module", params=[BubblewrapBackend, DockerBackend, ProcessBackend],
                ids=["bubblewrap", "docker", "process"])
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    if request.param is DockerBackend:
        request.getfixturevalue("docker_engine")
    folder = tmp_path_factory.mktemp("sessions")
    try:
        made = request.param(folder / "state", DirectoryStore(folder / "artifacts"))
    except UnavailableError as why:
        require_real(request.param.name, why.what)
    yield made
    made.close()


@pytest.fixture
def sandbox(backend: Backend) -> Iterator[Sandbox]:
    made = backend.acquire(SandboxSpec(files={"a.txt": b"content\n"}, environment={"GIVEN": "so"}))
    yield made
    made.close()


@pytest.fixture
def shell(sandbox: Sandbox) -> Session:
    return sandbox.session("shell")


@pytest.fixture
def python(sandbox: Sandbox) -> Session:
    return sandbox.session("python")


def said(result: ExecResult) -> tuple[int | None, bytes]:
    return result.exit_code, result.stdout


def test_a_shell_keeps_directory_variables_functions_and_jobs(shell: Session) -> None:
    made = shell.run("mkdir deep; cd deep; X=1; export Y='two words'; f() { echo \"f $1\"; }; sleep 100 &")
    assert said(made) == (0, b"")
    assert said(shell.run('basename "$PWD"; echo "$X $Y $GIVEN"; f 3; jobs | wc -l; false')) == (
        1, b"deep\n1 two words so\nf 3\n1\n")
    assert shell.lives == 1


def test_a_call_is_any_text_that_a_shell_takes(shell: Session) -> None:
    text = "for i in 1 2; do\n  echo $i\ndone\ncat <<'END'\n$not 'expanded' \"here\"\nEND\n"
    text += "printf '\\0\\377' | wc -c\n# a comment"
    assert said(shell.run(text)) == (0, b"1\n2\n$not 'expanded' \"here\"\n2\n")
    assert said(shell.run("echo caf\u00e9; cat")) == (0, "caf\u00e9\n".encode())
    assert said(shell.run("x=" + "y" * 200_000 + "; echo ${#x}")) == (0, b"200000\n")
    broken = shell.run("echo 'unclosed")
    assert broken.exit_code == 2 and b"matching" in broken.stderr and shell.lives == 1
    assert said(shell.run("a\0b")) == (126, b"")
    assert said(shell.run("")) == (0, b"")


def test_a_python_keeps_its_names_and_shows_a_last_value(python: Session) -> None:
    made = python.run("import os\nx = 20\ndef f(y):\n    return x + y\nprint('printed')\nf(1)")
    assert said(made) == (0, b"printed\n21\n")
    assert said(python.run("x += 1; f(1)")) == (0, b"22\n")
    wrong = python.run("f('a')")
    assert wrong.exit_code == 1 and b"TypeError" in wrong.stderr and b"python_session" not in wrong.stderr
    assert b"SyntaxError" in python.run("def g(:").stderr
    fed = python.run("import subprocess; print(subprocess.run(['cat'], capture_output=True).stdout)")
    assert said(fed) == (0, b"b''\n")
    assert python.lives == 1


def test_shell_python_and_plain_commands_live_side_by_side(sandbox: Sandbox) -> None:
    shell, python = sandbox.session("shell"), sandbox.session("python")
    shell.run("echo one > made; N=1")
    assert said(python.run("open('made').read()")) == (0, b"'one\\n'\n")
    assert said(sandbox.exec(["cat", "made"])) == (0, b"one\n")
    assert sandbox.read("made") == b"one\n"
    assert said(shell.run("echo $N")) == (0, b"1\n") and (shell.lives, python.lives) == (1, 1)


def test_a_call_over_its_deadline_ends_and_the_next_one_finds_directory_and_exports(shell: Session) -> None:
    shell.run("mkdir d; cd d; export KEPT=yes; LOST=no")
    began = time.monotonic()
    name = f"50.{time.monotonic_ns() % 10**9}"
    late = shell.run(f"echo before; setsid sleep {name} & sleep 60", deadline_s=0.3)
    assert (late.timed_out, late.exit_code, late.stdout) == (True, None, b"before\n") and time.monotonic() - began < 10
    assert said(shell.run(f"pwd -P | xargs basename; echo $KEPT-$LOST; pgrep -f 'slee[p] {name}' | wc -l")) == (
        0, b"d\nyes-\n0\n")
    assert shell.lives == 2


def test_a_python_over_its_deadline_is_a_new_one(python: Session) -> None:
    python.run("x = 1")
    assert python.run("while True: pass", deadline_s=0.3).timed_out
    assert b"NameError" in python.run("x").stderr and python.lives == 2


@pytest.mark.parametrize(("kind", "text", "code"), [
    ("shell", "exit 7", 7), ("shell", "kill -9 $$", 137), ("shell", "set -e; false", 1), ("shell", "exec true", 0),
    ("python", "raise SystemExit(7)", 7), ("python", "import os; os.kill(os.getpid(), 9)", 137),
    ("python", "os = __import__('os'); os._exit(3)", 3)])
def test_a_session_that_ends_itself_tells_how_and_comes_again(sandbox: Sandbox, kind: str, text: str,
                                                               code: int) -> None:
    session = sandbox.session(kind)  # type: ignore[arg-type]
    assert session.run(text).exit_code == code
    assert session.run("echo $((6*7))" if kind == "shell" else "6*7").stdout == b"42\n"
    assert session.lives == 2


def test_a_session_killed_with_all_around_it_is_noticed(backend: Backend, shell: Session) -> None:
    """Nobody is left to say that it ended: the agent is asked."""
    if not backend.isolates:
        pytest.skip("it would kill all that this user runs on the machine")
    began = time.monotonic()
    result = shell.run("(kill -9 -1); sleep 0.1; (kill -9 -1); kill -9 $$", deadline_s=60)
    assert result.exit_code != 0 and time.monotonic() - began < 15
    assert said(shell.run("echo again")) == (0, b"again\n")


def test_output_and_memory_are_bounded(sandbox: Sandbox, backend: Backend) -> None:
    small = backend.acquire(SandboxSpec(limits=Limits(output_kb=8, memory_mb=64)))
    try:
        shell = small.session("shell")
        much = shell.run("head -c 1000000 /dev/zero | tr '\\0' a")
        assert (much.stdout_bytes, len(much.stdout), much.truncated) == (1_000_000, 8192, True)
        assert shell.run("yes", deadline_s=20).output_limit
        assert said(shell.run("echo fine")) == (0, b"fine\n")
        if "oom" in backend.capabilities:
            python = small.session("python")
            assert python.run("x = bytearray(200 << 20)").exit_code in (None, 1, 137)
            assert said(python.run("1")) == (0, b"1\n")
    finally:
        small.close()


def test_the_state_of_a_shell_goes_to_another_sandbox(backend: Backend, shell: Session) -> None:
    shell.run("mkdir -p 'a b'; cd 'a b'; export Q=\"it's \\\"quoted\\\"\nand long\"")
    other = backend.acquire(SandboxSpec(files={"a b/x": b""}))
    try:
        moved = other.session("shell", shell.state)
        assert said(moved.run('ls; basename "$PWD"; echo "$Q"')) == (0, b"x\na b\nit's \"quoted\"\nand long\n")
    finally:
        other.close()


def test_no_command_reaches_the_stream_of_its_session(shell: Session, python: Session) -> None:
    """A command that could write there could answer in the place of the session."""
    open_ends = b"for n in /proc/self/fd/*; do readlink $n; done | grep -c socket"
    assert shell.run(open_ends.decode()).stdout == b"0\n"
    assert python.run(f"__import__('os').system({open_ends.decode()!r})").stdout.startswith(b"0\n")


def test_a_call_costs_a_round_trip(shell: Session, python: Session, sandbox: Sandbox) -> None:
    """Against a process start in the same sandbox, side by side: a quarter at the most."""
    def best(action: object) -> float:
        taken = []
        for _ in range(40):
            began = time.perf_counter()
            action()  # type: ignore[operator]
            taken.append(time.perf_counter() - began)
        return sorted(taken)[len(taken) // 4]

    exec_s = best(lambda: sandbox.exec(["cat", "a.txt"]))
    assert best(lambda: shell.run("read line < a.txt; echo $line")) < exec_s / 4
    assert best(lambda: python.run("1 + 1")) < exec_s / 4


def test_without_isolation_a_session_is_found_and_ended_too(tmp_path: Path) -> None:
    """Whatever it started and however that hid; closed while a call waits, and while nobody asks for anything."""
    made = ProcessBackend(tmp_path / "state", DirectoryStore(tmp_path / "artifacts"))
    idle, busy = made.acquire(SandboxSpec()), made.acquire(SandboxSpec())
    sessions = [one.session("shell") for one in (idle, busy)]
    pids = [int(one.run("(setsid nohup sleep 600 > /dev/null 2>&1 & echo $!)").stdout) for one in sessions]
    caught: list[str] = []

    def wait() -> None:
        try:
            sessions[1].run("echo begun > begun; sleep 600", deadline_s=600)
        except SandboxError as wrong:
            caught.append(wrong.kind)

    before = len(os.listdir("/proc/self/fd"))
    waiting = threading.Thread(target=wait)
    waiting.start()
    while b"begun" not in os.listdir(os.fsencode(busy._work)):
        pass
    for one in (idle, busy):
        one.close()
    waiting.join(20)
    assert caught == ["sandbox_closed"]
    wait_for_end(pids)
    assert len(os.listdir("/proc/self/fd")) < before - 10
    made.close()


def test_a_plain_command_without_isolation_leaves_the_session_alone(tmp_path: Path) -> None:
    made = ProcessBackend(tmp_path / "state", DirectoryStore(tmp_path / "artifacts"))
    sandbox = made.acquire(SandboxSpec())
    shell = sandbox.session("shell")
    shell.run("N=1; sleep 600 &")
    assert sandbox.exec(["sh", "-c", "sleep 601 & echo x"]).stdout == b"x\n"
    assert said(shell.run("echo $N; jobs | wc -l")) == (0, b"1\n1\n")
    assert sandbox.exec(["sleep", "60"], deadline_s=0.2).timed_out  # which ends all
    assert said(shell.run("echo $N-; jobs | wc -l")) == (0, b"-\n0\n") and shell.lives == 2
    made.close()
