"""What the docker backend claims beyond the contract: each capability, tried from inside a real container."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from artifacts.store import DirectoryStore
from sandboxes import snapshot
from sandboxes.docker_backend import DockerBackend
from sandboxes.docker_sandbox import DockerSandbox
from sandboxes.sandbox import Limits, Sandbox, SandboxSpec
from schemas.errors import SandboxError
from tests.docker_engine import DockerEngine
from tests.sandboxes.host import namespace_of, processes_in
from tests.sandboxes.test_isolation import STRAYS, SYSCALL

FILES = {"data.txt": b"hello\n"}
OURS = 2
"""Processes that are not commands: the engine's init and the keeper."""
KILL_ALONE = 1 << 5


@pytest.fixture(scope="module")
def docker(docker_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerBackend]:
    folder = tmp_path_factory.mktemp("docker")
    backend = DockerBackend(folder / "sandboxes", DirectoryStore(folder / "artifacts"))
    yield backend
    assert backend.open_count == 0
    backend.close()


@pytest.fixture
def sandbox(docker: DockerBackend) -> Iterator[DockerSandbox]:
    made = docker.acquire(SandboxSpec(files=FILES))
    yield made
    made.close()


def shell(sandbox: Sandbox, text: str) -> bytes:
    result = sandbox.exec(["sh", "-c", text])
    assert result.exit_code == 0, result
    return result.stdout


def test_isolation_is_declared(docker: DockerBackend) -> None:
    assert docker.isolates
    assert {"files", "network", "processes", "non_root", "readonly", "session", "images"} <= docker.capabilities


def test_commands_are_not_root_and_have_no_privilege(sandbox: Sandbox) -> None:
    said = shell(sandbox, "id -u; id -g; cat /proc/self/status").decode().splitlines()
    assert said[:2] == ["1000", "1000"]
    status = dict(line.split(":\t", 1) for line in said[2:])
    assert [int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")] == [0, 0, 0, 0]
    assert int(status["CapBnd"], 16) == KILL_ALONE  # the keeper's, which nothing that commands run can take
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"


def test_only_the_workspace_and_temporary_folders_can_be_written(docker: DockerBackend, tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("x")
    (tmp_path / "tool").chmod(0o666)
    sandbox = docker.acquire(SandboxSpec(readonly={"/tools/tool": tmp_path / "tool"}))
    try:
        refused = ("/x", "/usr/x", "/etc/x", "/etc/passwd", "/etc/hosts", "/dev/x", "/proc/x", "/tools/x",
                   "/tools/tool", "/opt/python/bin/x", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger",
                   "/sys/fs/cgroup/x")
        text = "".join(f"(echo y >> {path}) 2>/dev/null && echo {path};" for path in refused)
        assert shell(sandbox, text + "true") == b""
        allowed = ("/workspace/x", "/tmp/x", "/dev/shm/x", "/dev/null", "/dev/stdout")
        shell(sandbox, " && ".join(f"echo y >> {path}" for path in allowed))
    finally:
        sandbox.close()
    assert (tmp_path / "tool").read_text() == "x"


def test_files_of_the_host_are_not_there(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    absent = [tmp_path / "secret", Path(__file__), Path("/etc/shadow"), Path("/etc/machine-id"), *map(
        Path, ("/home", "/var", "/run", "/boot", "/var/run/docker.sock"))]
    assert shell(sandbox, "".join(f"[ -e {path} ] && echo {path};" for path in absent) + "true") == b""
    assert sandbox.exec(["sh", "-c", "cat /proc/kcore /proc/kmsg | head -c 1"]).stdout == b""
    assert str(tmp_path).encode() not in shell(sandbox, "env")


def test_no_network_but_a_loopback_of_its_own(sandbox: Sandbox) -> None:
    devices = [line.split(":")[0].strip() for line in shell(sandbox, "cat /proc/net/dev").decode().splitlines()[2:]]
    assert devices == ["lo"] and shell(sandbox, "cat /etc/resolv.conf") == b"nameserver 127.0.0.1\n"
    own = ("import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname());"
           "print('own loopback works')")
    assert sandbox.exec(["python3", "-c", own]).stdout == b"own loopback works\n"


def test_sockets_are_only_of_families_that_a_network_namespace_holds(sandbox: Sandbox) -> None:
    """40, a vsock, would reach the host of a virtual machine; 38 is the kernel's cryptography."""
    kinds = {1: 1, 2: 1, 10: 1, 16: 3, 17: 3, 21: 5, 38: 5, 40: 1}
    text = (f"import socket\nfor family, kind in {kinds}.items():\n try: socket.socket(family, kind); print(family)\n"
            " except OSError as wrong: assert wrong.errno in (1, 97), wrong")
    assert sandbox.exec(["python3", "-c", text]).stdout.split() == [b"1", b"2", b"10", b"16"]


def test_system_calls_that_open_the_kernel_are_refused(sandbox: Sandbox) -> None:
    assert sandbox.exec(["unshare", "--user", "true"]).stderr.endswith(b"Operation not permitted\n")
    clone, keyctl, bpf = {"x86_64": (56, 250, 321), "aarch64": (220, 219, 280)}[os.uname().machine]
    for call in ((clone, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0), (keyctl, 0, 0), (bpf, 0, 0, 0), (425, 1, 0)):
        assert sandbox.exec(["python3", "-c", SYSCALL, *map(str, call)]).stdout == b"1\n", call
    assert sandbox.exec(["python3", "-c", SYSCALL, "435", "0", "0"]).stdout == b"38\n"


def test_the_hosts_network_only_where_it_is_asked_for(docker: DockerBackend, sandbox: Sandbox) -> None:
    asked = docker.acquire(SandboxSpec(network="host"))
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            text = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5)"
            assert asked.exec(["python3", "-c", text]).exit_code == 0
            refused = sandbox.exec(["python3", "-c", text])
            assert refused.exit_code == 1 and b"refused" in refused.stderr
    finally:
        asked.close()


def test_sandboxes_do_not_see_each_other(docker: DockerBackend, sandbox: Sandbox) -> None:
    other = docker.acquire(SandboxSpec())
    try:
        shell(sandbox, "echo mine | tee /workspace/a /tmp/b /dev/shm/c > /dev/null")
        assert shell(other, "ls -A /workspace /tmp /dev/shm").split() == [b"/dev/shm:", b"/tmp:", b"/workspace:"]
        look = "for one in pid net ipc mnt uts; do readlink /proc/self/ns/$one; done"
        ours = [os.readlink(f"/proc/self/ns/{kind}").encode() for kind in ("pid", "net", "ipc", "mnt", "uts")]
        for one, two, three in zip(shell(sandbox, look).split(), shell(other, look).split(), ours, strict=True):
            assert len({one, two, three}) == 3
    finally:
        other.close()


def test_the_keeper_cannot_be_signalled_traced_or_spoken_for(sandbox: Sandbox) -> None:
    keeper = "for p in 1 $(pgrep -u 0); do"
    forge = (f"{keeper} kill -9 $p; kill -STOP $p; for f in 0 1 2; do echo kill 0 0 > /proc/$p/fd/$f; done;"
             "cat /proc/$p/environ /proc/$p/mem; ls /proc/$p/fd; done")
    result = sandbox.exec(["sh", "-c", forge])
    assert result.stdout == b"" and result.stderr.count(b"ermi") >= 14, result  # Permission denied, not permitted
    attach = "import ctypes; print([ctypes.CDLL(None).ptrace(16, pid, 0, 0) for pid in (1, 7)])"
    assert sandbox.exec(["python3", "-c", attach]).stdout == b"[-1, -1]\n"
    assert sandbox.exec(["sh", "-c", "kill -9 -1; exit 5"]).exit_code in (5, 137)
    assert shell(sandbox, "echo fine") == b"fine\n"


def test_commands_inherit_their_three_streams_and_nothing_else(sandbox: Sandbox) -> None:
    look = "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))"  # the fourth is the listing itself
    assert sandbox.exec(["python3", "-c", look]).stdout == b"[0, 1, 2, 3]\n"
    assert sandbox.exec(["python3", "-c", look], stdin=b"x").stdout == b"[0, 1, 2, 3]\n"
    assert sandbox.session("shell").run(f'python3 -c "{look}"').stdout == b"[0, 1, 2, 3]\n"
    nested = f"import subprocess, sys; print(subprocess.check_output([sys.executable, '-c', {look!r}]).decode())"
    assert sandbox.session("python").run(nested).stdout.startswith(b"[0, 1, 2, 3]\n")


@pytest.mark.parametrize(("text", "deadline_s"), [
    (f"{STRAYS} echo started; exit 0", 30), (f"{STRAYS} echo started; sleep 65", 0.5), (f"{STRAYS} yes", 60),
    (f"{STRAYS} kill -9 $PPID", 30)])
def test_no_process_is_left_after_a_command(sandbox: Sandbox, text: str, deadline_s: float) -> None:
    """However they hide, and however the command ends: also when it kills what would tell its end."""
    namespace = namespace_of(sandbox)
    sandbox.exec(["sh", "-c", text], deadline_s=deadline_s)
    assert len(processes_in(namespace)) == OURS
    assert shell(sandbox, "echo again") == b"again\n"


def test_no_process_is_left_after_a_late_call_of_a_session(sandbox: Sandbox) -> None:
    namespace = namespace_of(sandbox)
    sandbox.session("python").run("x = 1")
    assert sandbox.session("shell").run(f"{STRAYS} sleep 65", deadline_s=0.5).timed_out
    assert len(processes_in(namespace)) == OURS


def test_orphans_are_reaped(sandbox: Sandbox) -> None:
    session = sandbox.session("shell")
    assert session.run("for n in 1 2 3 4 5 6 7 8; do (sleep 0.01 & exec true); done; sleep 0.3").exit_code == 0
    assert session.run("ps -eo stat= | grep -c Z").stdout == b"0\n"


def test_files_stay_when_the_processes_are_killed(sandbox: Sandbox) -> None:
    assert sandbox.exec(["sh", "-c", "echo w > w; echo t > /tmp/t; sleep 60"], deadline_s=0.5).timed_out
    assert shell(sandbox, "cat w /tmp/t data.txt") == b"w\nt\nhello\n"


def test_out_of_memory_is_reported_and_contained(docker: DockerBackend) -> None:
    if "oom" not in docker.capabilities:
        pytest.skip("the engine has no memory limit here")
    sandbox = docker.acquire(SandboxSpec(limits=Limits(memory_mb=64)))
    try:
        result = sandbox.exec(["python3", "-c", "x = b'x' * (300 << 20); print(len(x))"])
        assert result.oom and result.exit_code is None and result.stdout == b""
        child = sandbox.exec(["sh", "-c", "python3 -c \"x = b'x' * (300 << 20)\"; echo went on"])
        assert child.oom and child.exit_code == 0 and child.stdout == b"went on\n"
        after = sandbox.exec(["echo", "fine"])
        assert not after.oom and after.stdout == b"fine\n"
        late = sandbox.session("python").run("x = b'x' * (300 << 20)")
        assert late.oom and late.exit_code is None
    finally:
        sandbox.close()


def test_a_fork_bomb_is_contained(docker: DockerBackend) -> None:
    if "pids" not in docker.capabilities:
        pytest.skip("the engine has no limit of processes here")
    sandbox = docker.acquire(SandboxSpec(limits=Limits(pids=32)))
    try:
        bomb = ("import os, time\nn = 0\ntry:\n while True:\n  if os.fork() == 0: time.sleep(60)\n  n += 1\n"
                "except OSError: print(n)")
        result = sandbox.exec(["python3", "-c", bomb])
        assert result.exit_code == 0 and 20 <= int(result.stdout) <= 32 and result.pids_limit
        endless = "import os\nwhile True:\n try: os.fork()\n except OSError: pass"
        assert sandbox.exec(["python3", "-c", endless], deadline_s=1).timed_out
        following = sandbox.exec(["echo", "next"])
        assert following.stdout == b"next\n" and not following.pids_limit
        session = sandbox.session("python")
        session.run("import os, time\ntry:\n while True:\n  if os.fork() == 0: time.sleep(60)\nexcept OSError: pass")
        full = sandbox.exec(["echo", "x"])
        # The shell has no room for another process, or the engine none for the shell.
        assert full.exit_code in (2, 126) and full.pids_limit, full
        assert b"Cannot fork" in full.stderr or b"no process can be started" in full.stderr
    finally:
        sandbox.close()


@pytest.mark.parametrize("folder", ["/workspace", "/tmp", "/dev/shm"])
def test_what_can_be_written_is_limited(docker: DockerBackend, folder: str) -> None:
    sandbox = docker.acquire(SandboxSpec(limits=Limits(workspace_mb=4, file_mb=64), files={"big": b"x" * (3 << 20)}))
    try:
        result = sandbox.exec(["sh", "-c", f"cd {folder} && head -c 5000000 /dev/zero > a"])
        assert result.exit_code != 0 and b"No space left" in result.stderr
        assert shell(sandbox, f"cd {folder} && rm a; echo room > c; cat c") == b"room\n"
    finally:
        sandbox.close()


def test_the_workspace_is_seen_at_further_paths(docker: DockerBackend) -> None:
    sandbox = docker.acquire(SandboxSpec(files=FILES, aliases=["/app", "/home/user/project"]))
    try:
        assert shell(sandbox, "cat /app/data.txt; cd /home/user/project && echo more > x; cat /workspace/x") == (
            b"hello\nmore\n")
        assert sandbox.snapshot() == snapshot.snapshot_digest_of({**FILES, "x": b"more\n"})
    finally:
        sandbox.close()
    assert docker.engine.api.volumes(filters={"label": "headrace.owner"})["Volumes"] in (None, [])


def test_close_from_another_thread_ends_a_running_command(docker: DockerBackend) -> None:
    sandbox = docker.acquire(SandboxSpec())
    namespace = namespace_of(sandbox)
    started, caught = threading.Event(), []

    def run() -> None:
        started.set()
        try:
            sandbox.exec(["sleep", "60"], deadline_s=60)
        except SandboxError as wrong:
            caught.append(wrong.kind)

    thread = threading.Thread(target=run)
    thread.start()
    started.wait()
    sandbox.close()
    assert processes_in(namespace) == []
    thread.join(30)
    assert caught == ["sandbox_closed"]


def test_a_lease_ends(docker: DockerBackend) -> None:
    sandbox = docker.acquire(SandboxSpec(lease_s=2))
    try:
        with pytest.raises(SandboxError) as caught:
            sandbox.exec(["sleep", "60"], deadline_s=60)
        assert caught.value.kind == "sandbox_broken" and "lease" in str(caught.value)
    finally:
        sandbox.close()


def test_a_container_that_was_removed_is_a_broken_sandbox(docker: DockerBackend) -> None:
    sandbox = docker.acquire(SandboxSpec())
    docker.engine.remove(sandbox.container)
    for _ in range(2):
        with pytest.raises(SandboxError) as caught:
            sandbox.exec(["echo", "x"])
        assert caught.value.kind == "sandbox_broken"
    sandbox.close()


def test_a_variable_that_the_engine_cannot_hold_is_said(docker: DockerBackend) -> None:
    with pytest.raises(SandboxError) as caught:
        docker.acquire(SandboxSpec(environment={"ODD": "\udcff"}))
    assert caught.value.kind == "sandbox_start" and "ODD" in str(caught.value)
