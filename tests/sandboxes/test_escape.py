"""Hostile commands try to get out, to reach the next one, to speak for the agent, or to pass for a broken sandbox."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from sandboxes.bubblewrap import BubblewrapBackend
from sandboxes.sandbox import Backend, ExecResult, Limits, Sandbox, SandboxSpec
from schemas.errors import SandboxError

SECRET = "hunter2-" + "x" * 8
# Tries system calls by number, prints their errno, or -1 for one that went well.
CALLS = """
import ctypes, json, sys
libc = ctypes.CDLL(None, use_errno=True)
print(*(-1 if libc.syscall(*call) >= 0 else ctypes.get_errno() for call in json.loads(sys.argv[1])))
"""
PRLIMIT, PIDFD_GETFD, MODIFY_LDT, PTRACE = {"x86_64": (302, 438, 154, 101), "aarch64": (261, 438, None, 117)}.get(
    os.uname().machine, (0, 0, 0, 0))


def python(sandbox: Sandbox, text: str, *arguments: str, deadline_s: float = 30.0) -> ExecResult:
    return sandbox.exec(["python3", "-c", text, *arguments], deadline_s=deadline_s)


def works(sandbox: Sandbox) -> bool:
    return sandbox.exec(["echo", "fine"]).stdout == b"fine\n"


def test_secrets_of_the_owner_are_nowhere(bubblewrap: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", SECRET)
    sandbox = bubblewrap.acquire(SandboxSpec())
    look = "env; cat /proc/*/environ /proc/*/cmdline /proc/*/maps 2> /dev/null | tr '\\0' '\\n'; ls -l /proc/*/fd"
    for said in (sandbox.exec(["sh", "-c", look]), sandbox.session("shell").run(look),
                 sandbox.session("python").run(f"import os; os.system({look!r}); print(os.environ)")):
        assert said.stdout_bytes > 100 and SECRET.encode() not in said.stdout + said.stderr
        assert not said.truncated
    sandbox.close()


def test_the_hosts_processes_and_folders_are_not_behind_proc(isolated: Sandbox) -> None:
    for path in ("/proc/1/root/etc/shadow", "/proc/1/cwd/a", "/proc/self/root/etc/shadow", "/proc/self/root/../root/x",
                 f"/proc/{os.getpid()}/environ", f"/proc/{os.getpid()}/root"):
        assert isolated.exec(["cat", path]).exit_code == 1, path
    assert isolated.exec(["sh", "-c", "cd /..; ls -d home root/.ssh var sys run"]).stdout == b""
    for path in ("/proc/1/oom_score_adj", "/proc/1/timerslack_ns", "/proc/1/comm", "/proc/sys/kernel/hostname"):
        assert isolated.exec(["sh", "-c", f"echo 1 > {path}"]).exit_code != 0, path


def test_the_agent_cannot_be_looked_into_robbed_or_starved(isolated: Sandbox) -> None:
    """It is of the same user: a limit set for it would end it, and that would pass for the sandbox's fault."""
    rob = "import ctypes, os\nl = ctypes.CDLL(None, use_errno=True)\np = os.pidfd_open(1)\n" \
          f"print(*{{l.syscall({PIDFD_GETFD}, p, n, 0) for n in range(6)}}, ctypes.get_errno())"
    assert python(isolated, rob).stdout == b"-1 1\n"
    starve = "import resource, sys\nfor name in dir(resource):\n  if name.startswith('RLIMIT_'):\n" \
             "    try: resource.prlimit(1, getattr(resource, name), (0, 0)); print(name)\n" \
             "    except (PermissionError, ValueError): pass"
    assert python(isolated, starve).stdout == b""
    for _ in range(3):
        assert works(isolated)
    own = ("import resource as r\nr.prlimit(0, r.RLIMIT_NOFILE, (64, 64))\nr.setrlimit(r.RLIMIT_FSIZE, (1, 1))\n"
           "print(r.prlimit(1, r.RLIMIT_CORE))")
    assert python(isolated, own).stdout == b"(0, 0)\n"
    calls = [[MODIFY_LDT, 0, 0, 0]] if MODIFY_LDT else []
    said = python(isolated, CALLS, json.dumps([*calls, [PTRACE, 16, 1, 0, 0], [467, 0, 0, 0, 0, 0]])).stdout
    assert set(said.split()) == {b"1"}


def test_setuid_programs_give_nothing(isolated: Sandbox) -> None:
    find = "find /usr/bin/ /usr/sbin/ -perm /6000 -type f 2> /dev/null"
    found = isolated.exec(["sh", "-c", find]).stdout.decode().split()
    if not found:
        pytest.skip("no setuid program on this system")
    assert isolated.exec(["cp", found[0], "own"]).exit_code == 0
    assert isolated.exec(["sh", "-c", "chmod 6755 own; stat -c %u own"]).stdout == b"1000\n"
    for command in (["su", "-c", "id -u"], ["mount", "-t", "tmpfs", "x", "/tmp"], ["chroot", "/tmp"]):
        ran = isolated.exec(command)
        assert ran.exit_code != 0 and ran.stdout.strip() != b"0", command


def test_nothing_is_left_for_the_next_sandbox(bubblewrap: Backend) -> None:
    """Shared memory, semaphores, queues, abstract sockets, temporary files: all of them end with their sandbox."""
    leave = """
import ctypes, socket
libc = ctypes.CDLL(None)
print(*(made >= 0 for made in (libc.shmget(77, 4096, 0o1666), libc.semget(77, 1, 0o1666), libc.msgget(77, 0o1666))))
for path in ("/dev/shm/left", "/tmp/left"):
    open(path, "w").write("x")
"""
    one, two = bubblewrap.acquire(SandboxSpec()), bubblewrap.acquire(SandboxSpec())
    assert python(one, leave).stdout == b"True True True\n"
    assert one.exec(["sh", "-c", "cat /proc/sysvipc/* | grep -c ' 77 '"]).stdout == b"3\n"
    listen = one.session("python")
    assert listen.run("import socket; s = socket.socket(socket.AF_UNIX); s.bind('\\0left'); s.listen()").exit_code == 0
    for later in (two, bubblewrap.acquire(SandboxSpec())):
        look = "ls -A /dev/shm /tmp /workspace | grep left; grep ' 77 ' /proc/sysvipc/*; grep left /proc/net/unix"
        assert later.exec(["sh", "-c", look]).stdout == b""
        connect = "import socket; socket.socket(socket.AF_UNIX).connect('\\0left')"
        assert b"ConnectionRefusedError" in python(later, connect).stderr
        later.close()
    one.close()


def test_a_sandbox_started_ahead_has_the_limits_and_mounts_that_are_asked_for(bubblewrap: BubblewrapBackend,
                                                                              tmp_path: Path) -> None:
    """The first of these were there before anybody asked; the last had to be made."""
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / "inner").write_text("mine")
    for number in range(5):
        spec = SandboxSpec(files={"a": b"x"}, readonly={f"/tools/{number}": tmp_path / "tool"},
                           aliases=[f"/app{number}"], limits=Limits(workspace_mb=3 + number, pids=40 + number))
        sandbox = bubblewrap.acquire(spec)
        script = (f"pwd; cd /tools/{number}; ls; touch x; cd /app{number}; echo y > /workspace/b; cat b; touch c;"
                  "ls /workspace; df -k /tmp | tail -1")
        said = sandbox.exec(["sh", "-c", script])
        assert said.stdout.split()[:7] == [b"/workspace", b"inner", b"y", b"a", b"b", b"c", b"headrace"], said
        assert b"Read-only file system" in said.stderr
        if "workspace_limit" in bubblewrap.capabilities:
            assert said.stdout.split()[7] == b"%d" % ((3 + number) << 10)
        bomb = python(sandbox, "import os, time\nn = 0\ntry:\n while True:\n  if os.fork() == 0: time.sleep(60)\n"
                               "  n += 1\nexcept OSError: print(n)")
        assert 25 + number <= int(bomb.stdout) <= 40 + number
        assert bomb.pids_limit is ("pids" in bubblewrap.capabilities)
        sandbox.close()


def test_no_bomb_passes_for_a_broken_sandbox(bubblewrap: Backend) -> None:
    """Children that fork as fast as they can, when the command is over: the agent needs a process too."""
    sandbox = bubblewrap.acquire(SandboxSpec(limits=Limits(pids=24)))
    bomb = ("import os, time\nfor _ in range(6):\n if os.fork() == 0:\n  while True:\n   try: os.fork()\n"
            "   except OSError: pass\ntime.sleep(0.1); os._exit(0)")
    for _ in range(4):
        ran = python(sandbox, bomb)
        assert not ran.timed_out and (ran.pids_limit or "pids" not in bubblewrap.capabilities)
        assert works(sandbox)
    sandbox.close()


FORGED = ["abc\\n\\0\\0", "1 999999\\n/\\0\\0", "1 0\\n/\\0\\0\\0\\0\\0", "\\0\\0\\0", "\\0\\0\\0nine\\n",
          "1 -1\\n/\\0\\0"]


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_answer_of_a_shell_is_its_end_and_nobody_elses(isolated: Sandbox, forged: str) -> None:
    """Its own descriptors are in reach of a shell's redirections; what it says there may be anything."""
    shell = isolated.session("shell")
    said = shell.run(f"for n in 10 11 12 255; do printf '{forged}' >&$n; done 2> /dev/null; sleep 0.1", deadline_s=1)
    assert said.exit_code in (None, 0, 1)
    for _ in range(2):
        shell.run("true")
    assert shell.run("echo next").stdout == b"next\n"
    assert works(isolated)


def test_files_of_the_workspace_are_not_the_modules_of_its_python(bubblewrap: Backend) -> None:
    taken = {f"{name}.py": b"raise SystemExit(9)" for name in ("ast", "struct", "traceback", "contextlib", "itertools")}
    sandbox = bubblewrap.acquire(SandboxSpec(files={**taken, "mine.py": b"x = 42"}))
    session = sandbox.session("python")
    assert session.run("import mine; mine.x").stdout == b"42\n" and session.lives == 1
    sandbox.close()


@pytest.mark.parametrize("forged", ["abc\\n", "1 99999999\\n", "\\0\\0\\0x\\n", "\\n", "1 256\\n", "1 -1\\n", "2 0\\n"])
def test_a_forged_answer_of_a_python_is_its_end_and_nobody_elses(isolated: Sandbox, forged: str) -> None:
    session = isolated.session("python")
    everywhere = f"import os\nfor n in range(3, 60):\n  try: os.write(n, b'{forged}')\n  except OSError: pass"
    assert session.run(everywhere, deadline_s=2).exit_code is None
    assert session.run("6 * 7").stdout == b"42\n"
    assert works(isolated)


def test_an_answer_said_too_early_is_not_taken_for_the_next_one(isolated: Sandbox) -> None:
    """The real one comes when the next call has begun."""
    session = isolated.session("python")
    early = ("import os, time\nfor n in range(3, 60):\n  try: os.write(n, b'1 0\\n')\n  except OSError: pass\n"
             "time.sleep(0.2)")
    assert session.run(early).exit_code == 0
    assert session.run("import time; time.sleep(60)").exit_code is None
    assert session.run("raise SystemError").exit_code == 1
    assert session.run("print('in step')").stdout == b"in step\n" and session.lives == 2


def test_output_that_never_ends_a_line_or_a_stream(isolated: Sandbox) -> None:
    endless = isolated.exec(["sh", "-c", "tr '\\0' a < /dev/zero"], deadline_s=60)
    assert endless.output_limit and endless.stdout_bytes > 64 << 20 and len(endless.stdout) == 256 << 10
    quiet = isolated.exec(["sh", "-c", "printf open; exec > /dev/null 2>&1; sleep 60"], deadline_s=0.5)
    assert (quiet.timed_out, quiet.stdout) == (True, b"open")
    assert isolated.exec(["sh", "-c", "printf open; sleep 60 & exit 3"]).stdout == b"open"


def test_signals_that_are_ignored_and_processes_that_stop(isolated: Sandbox) -> None:
    ignore = "trap '' TERM INT HUP QUIT; while :; do :; done"
    for command in (ignore, "kill -STOP $$", "setsid sh -c 'kill -STOP $$' & wait"):
        assert isolated.exec(["sh", "-c", command], deadline_s=0.5).timed_out, command
        assert works(isolated)


def test_input_that_is_never_read(isolated: Sandbox) -> None:
    assert isolated.exec(["true"], stdin=b"x" * (32 << 20)).exit_code == 0
    assert isolated.exec(["head", "-c", "1"], stdin=b"y" * (32 << 20)).stdout == b"y"
    assert isolated.exec(["cat"]).stdout == b""


def test_an_answer_of_two_gigabytes_is_not_read(bubblewrap: Backend) -> None:
    sandbox = bubblewrap.acquire(SandboxSpec(limits=Limits(file_mb=4096)))
    assert sandbox.exec(["truncate", "-s", "2G", "answer"]).exit_code == 0
    began = time.process_time()
    with pytest.raises(OSError, match="over the limit"):
        sandbox.read("answer")
    assert time.process_time() - began < 0.5
    small = bubblewrap.acquire(SandboxSpec())
    assert small.exec(["truncate", "-s", "2G", "answer"]).exit_code == 128 + 25  # the limit of a file's size
    for opened in (sandbox, small):
        opened.close()


def test_files_that_are_none_are_neither_read_nor_written(isolated: Sandbox) -> None:
    make = """
import os, socket
os.mkfifo("fifo")
socket.socket(socket.AF_UNIX).bind("sock")
for name, target in {"mem": "/proc/self/mem", "shadow": "/etc/shadow", "up": "../../../../etc/passwd",
                     "zero": "/dev/zero", "agent": "/proc/1/fd/0"}.items():
    os.symlink(target, name)
"""
    assert python(isolated, make).exit_code == 0
    for name in ("fifo", "sock", "mem", "shadow", "up", "zero", "agent"):
        with pytest.raises(OSError):
            isolated.read(name)
        with pytest.raises(OSError):
            isolated.write(name, b"x")
    assert isolated.snapshot()


def test_a_name_that_changes_while_it_is_read_leads_nowhere_else(isolated: Sandbox, tmp_path: Path) -> None:
    """A job of a session turns a folder into a link to the host's and back, as fast as it can."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text(SECRET)
    isolated.write("d/secret", b"own")
    exchange = (f"import ctypes, os\nos.symlink({str(outside)!r}, 'link')\nlibc = ctypes.CDLL(None)\n"
                "open('ready', 'w').close()\nwhile not libc.renameat2(-100, b'd', -100, b'link', 2): pass")
    isolated.write("exchange.py", exchange.encode())
    shell = isolated.session("shell")
    assert shell.run("python3 exchange.py & while [ ! -e ready ]; do :; done").exit_code == 0
    seen: set[bytes] = set()
    began = time.monotonic()
    while time.monotonic() < began + (20 if len(seen) < 2 else 0.5):
        try:
            seen.add(isolated.read("d/secret"))
            isolated.write("d/secret", b"own")
        except (PermissionError, NotADirectoryError):
            seen.add(b"refused")
    assert seen == {b"own", b"refused"}
    assert (outside / "secret").read_text() == SECRET and len(list(outside.iterdir())) == 1


def test_a_closed_sandbox_cannot_be_held_open(bubblewrap: Backend) -> None:
    """Whatever a command did to its files and processes, `close` comes to an end."""
    sandbox = bubblewrap.acquire(SandboxSpec())
    sandbox.session("shell").run("mkdir -p a/b; chmod 0 a; (trap '' TERM; sleep 100) & cd /tmp; kill -STOP $!")
    began = time.monotonic()
    sandbox.close()
    assert time.monotonic() - began < 10
    with pytest.raises(SandboxError):
        sandbox.exec(["true"])
