"""What bubblewrap claims beyond the contract: each capability, tried from inside."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from artifacts.store import DirectoryStore
from sandboxes.sandbox import Backend, Limits, Sandbox, SandboxSpec
from schemas.errors import SandboxError
from tests.sandboxes.conftest import open_here
from tests.sandboxes.host import namespace_of, processes_in, wait_for_end

# Tries a system call by number, prints its errno.
SYSCALL = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
print(-1 if libc.syscall(*map(int, sys.argv[1:])) >= 0 else ctypes.get_errno())
"""


def shell(sandbox: Sandbox, text: str) -> bytes:
    result = sandbox.exec(["sh", "-c", text])
    assert result.exit_code == 0, result
    return result.stdout


def test_isolation_is_declared(bubblewrap: Backend) -> None:
    assert bubblewrap.isolates
    assert {"files", "network", "processes", "non_root", "readonly"} <= bubblewrap.capabilities


def test_commands_are_not_root_in_any_sense(isolated: Sandbox) -> None:
    assert shell(isolated, "id -u; id -g").split() == [b"1000", b"1000"]
    status = dict(line.split(":\t", 1) for line in shell(isolated, "cat /proc/self/status").decode().splitlines())
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name], 16) == 0
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    agent, = processes_in(namespace_of(isolated))
    if os.geteuid() == 0:
        assert Path(f"/proc/{agent}").stat().st_uid != 1000
        uids = next(line for line in Path(f"/proc/{agent}/status").read_text().splitlines() if line.startswith("Uid:"))
        assert "0" not in uids.split()[1:]


def test_kernel_settings_cannot_be_written(isolated: Sandbox) -> None:
    before = Path("/proc/sys/kernel/core_pattern").read_bytes()
    result = isolated.exec(["sh", "-c", "cat /proc/sys/kernel/core_pattern > p; cat p > /proc/sys/kernel/core_pattern"])
    assert result.exit_code != 0
    assert isolated.exec(["sh", "-c", "echo h > /proc/sysrq-trigger"]).exit_code != 0
    assert Path("/proc/sys/kernel/core_pattern").read_bytes() == before


@pytest.mark.parametrize(("family", "opens"), [(1, True), (2, True), (10, True), (16, True), (17, False), (21, False),
                                               (38, False), (40, False)])
def test_sockets_are_only_of_families_that_a_network_namespace_holds(
        isolated: Sandbox, family: int, opens: bool) -> None:
    """40, a vsock, would reach the host of a virtual machine; 38 is the kernel's cryptography."""
    kind = {16: socket.SOCK_RAW, 17: socket.SOCK_RAW, 38: socket.SOCK_SEQPACKET}.get(family, socket.SOCK_STREAM)
    result = isolated.exec(["python3", "-c", f"import socket; socket.socket({family}, {int(kind)})"])
    assert (result.exit_code == 0) is opens
    assert opens or b"[Errno 1]" in result.stderr


def test_no_network_but_a_loopback_of_its_own(isolated: Sandbox) -> None:
    devices = [line.split(":")[0].strip() for line in shell(isolated, "cat /proc/net/dev").decode().splitlines()[2:]]
    assert devices == ["lo"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        text = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        result = isolated.exec(["python3", "-c", text])
        assert result.exit_code == 1 and b"refused" in result.stderr
    text = ("import socket; s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname());"
            "print('own loopback works')")
    assert isolated.exec(["python3", "-c", text]).stdout == b"own loopback works\n"


def test_files_of_the_host_are_not_there(isolated: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    for path in (tmp_path / "secret", Path(__file__), Path("/etc/shadow"), Path("/etc/machine-id"), Path("/home"),
                 Path("/var"), Path("/run"), Path("/sys"), Path("/boot")):
        assert isolated.exec(["test", "-e", str(path)]).exit_code == 1, path
    assert isolated.exec(["sh", "-c", "cat /proc/kcore /proc/kmsg > /dev/null"]).exit_code == 1
    assert not [line for line in shell(isolated, "env").decode().splitlines() if str(tmp_path) in line]


def test_only_the_workspace_and_temporary_folders_can_be_written(bubblewrap: Backend, tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("x")
    (tmp_path / "tool").chmod(0o666)
    isolated = bubblewrap.acquire(SandboxSpec(readonly={"/tools/tool": tmp_path / "tool"}))
    for path in ("/x", "/usr/x", "/etc/x", "/etc/passwd", "/dev/x", "/proc/x", "/tools/x", "/tools/tool",
                 "/opt/python/bin/x"):
        assert isolated.exec(["sh", "-c", f"echo y >> {path}"]).exit_code == 2, path
    for path in ("/workspace/x", "/tmp/x", "/dev/shm/x", "/dev/null", "/dev/stdout", "/dev/stderr"):
        assert isolated.exec(["sh", "-c", f"echo y >> {path}"]).exit_code == 0, path
    isolated.close()
    assert (tmp_path / "tool").read_text() == "x"


def test_sandboxes_do_not_see_each_other(bubblewrap: Backend) -> None:
    one, two = bubblewrap.acquire(SandboxSpec()), bubblewrap.acquire(SandboxSpec())
    shell(one, "echo mine | tee /workspace/a /tmp/b /dev/shm/c > /dev/null")
    assert shell(two, "ls -A /workspace /tmp /dev/shm").split() == [b"/dev/shm:", b"/tmp:", b"/workspace:"]
    assert int(shell(two, "ls /proc | grep '^[0-9]*$' | wc -l")) <= 5
    assert namespace_of(one) != namespace_of(two)
    for kind in ("net", "ipc", "mnt", "user", "uts", "cgroup"):
        link = f"/proc/self/ns/{kind}"
        seen = {shell(one, f"readlink {link}").strip(), shell(two, f"readlink {link}").strip()}
        assert len(seen | {os.readlink(link).encode()}) == 3, kind
    one.close()
    two.close()


def test_system_calls_that_open_the_kernel_are_refused(isolated: Sandbox) -> None:
    assert isolated.exec(["unshare", "--user", "true"]).stderr.endswith(b"Operation not permitted\n")
    new_user_namespace = 0x10000000
    machine = os.uname().machine
    clone, keyctl, bpf = {"x86_64": (56, 250, 321), "aarch64": (220, 219, 280)}[machine]
    for call in ((clone, new_user_namespace | signal.SIGCHLD, 0, 0, 0, 0), (keyctl, 0, 0), (bpf, 0, 0, 0), (425, 1, 0)):
        assert isolated.exec(["python3", "-c", SYSCALL, *map(str, call)]).stdout == b"1\n", call
    assert isolated.exec(["python3", "-c", SYSCALL, "435", "0", "0"]).stdout == b"38\n"


def test_the_agent_cannot_be_signalled_traced_or_spoken_for(isolated: Sandbox) -> None:
    forge = "for f in 0 3 4; do echo 77 > /proc/1/fd/$f; done; kill -9 1; kill -STOP 1; kill -9 -1; exit 5"
    result = isolated.exec(["sh", "-c", forge])
    assert result.exit_code == 5, result
    for look in ("cat /proc/1/environ", "cat /proc/1/mem", "cat /proc/1/maps", "ls /proc/1/fd", "cat /proc/1/fd/0"):
        assert b"Permission denied" in isolated.exec(look.split()).stderr, look
    attach = "import ctypes; print(ctypes.CDLL(None).ptrace(16, 1, 0, 0))"
    assert isolated.exec(["python3", "-c", attach]).stdout == b"-1\n"
    assert isolated.exec(["sh", "-c", "cat /etc/headrace/sh"]).exit_code == 1
    assert isolated.exec(["sh", "-c", "printf '0\\n'; printf '0\\n' >&0; printf 'ready\\n' >&3; exit 6"]).exit_code != 0
    assert isolated.exec(["true"]).exit_code == 0


def test_a_command_cannot_spoil_the_streams_of_the_next(isolated: Sandbox) -> None:
    spoil = ("import fcntl, os\nfor n in (1, 2):\n fcntl.fcntl(n, fcntl.F_SETFL, os.O_NONBLOCK)\n"
             "for n in (0, 1, 2):\n"
             " try:\n  os.fchmod(n, 0)\n except OSError as e: print(e.errno)\n")
    assert isolated.exec(["python3", "-c", spoil], stdin=b"x").stdout == (b"1\n" * 3 if os.geteuid() == 0 else b"")
    assert isolated.exec(["seq", "200000"]).stdout_bytes == 1288895
    assert isolated.exec(["cat"], stdin=b"again").stdout == b"again"


def test_commands_inherit_their_three_streams_and_nothing_else(tmp_path: Path, artifacts: DirectoryStore) -> None:
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(40)]  # so that no number of ours is overwritten by chance
    for descriptor in held:
        os.set_inheritable(descriptor, True)
    backend = open_here("bubblewrap", tmp_path / "home", artifacts)
    sandbox = backend.acquire(SandboxSpec())
    listed = sandbox.exec(["python3", "-c", "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))"])
    assert listed.stdout == b"[0, 1, 2, 3]\n"  # the fourth is the listing itself
    sandbox.close()
    backend.close()
    for descriptor in held:
        os.close(descriptor)


STRAYS = "sleep 61 & setsid sleep 62 & (setsid nohup sleep 63 > /dev/null 2>&1 &) ; (trap '' TERM HUP INT; sleep 64 &);"


def test_no_process_is_left_after_a_command(isolated: Sandbox) -> None:
    namespace = namespace_of(isolated)
    agent, = processes_in(namespace)
    result = isolated.exec(["sh", "-c", f"{STRAYS} echo started; exit 4"])
    assert (result.exit_code, result.stdout) == (4, b"started\n")
    assert processes_in(namespace) == [agent]


def test_no_process_is_left_after_a_deadline(isolated: Sandbox) -> None:
    namespace = namespace_of(isolated)
    result = isolated.exec(["sh", "-c", f"{STRAYS} echo started; sleep 65"], deadline_s=0.5)
    assert result.timed_out and result.stdout == b"started\n"
    assert processes_in(namespace) == []
    assert isolated.exec(["echo", "again"]).stdout == b"again\n"


def test_no_process_is_left_after_too_much_output(isolated: Sandbox) -> None:
    namespace = namespace_of(isolated)
    assert isolated.exec(["sh", "-c", f"{STRAYS} yes"], deadline_s=60).output_limit
    assert processes_in(namespace) == []


def test_files_stay_when_the_processes_are_killed(isolated: Sandbox) -> None:
    assert isolated.exec(["sh", "-c", "echo w > w; echo t > /tmp/t; sleep 60"], deadline_s=0.3).timed_out
    assert shell(isolated, "cat w /tmp/t data.txt") == b"w\nt\nhello\n"


def needs(backend: Backend, capability: str) -> None:
    if capability not in backend.capabilities:
        pytest.skip(f"`{capability}` is not claimed here: no cgroup can be made, or overlayfs cannot stand on a tmpfs")


def test_out_of_memory_is_reported_and_contained(bubblewrap: Backend) -> None:
    needs(bubblewrap, "oom")
    sandbox = bubblewrap.acquire(SandboxSpec(limits=Limits(memory_mb=64)))
    result = sandbox.exec(["python3", "-c", "x = b'x' * (300 << 20); print(len(x))"])
    assert result.oom and result.exit_code is None and result.stdout == b""
    child = sandbox.exec(["sh", "-c", "python3 -c \"x = b'x' * (300 << 20)\"; echo went on"])
    assert child.oom and child.exit_code == 0 and child.stdout == b"went on\n"
    after = sandbox.exec(["echo", "fine"])
    assert not after.oom and after.stdout == b"fine\n"
    sandbox.close()


def test_memory_is_limited_for_all_processes_together(bubblewrap: Backend) -> None:
    needs(bubblewrap, "oom")
    sandbox = bubblewrap.acquire(SandboxSpec(limits=Limits(memory_mb=64)))
    hogs = """
import os, time
for _ in range(3):
    out, report = os.pipe()
    if os.fork() == 0:
        held = b"x" * (40 << 20)
        os.write(report, b"held")
        time.sleep(600)
    os.close(report)
    os.read(out, 4)
"""
    result = sandbox.exec(["python3", "-c", hogs], deadline_s=60)
    assert result.oom and not result.timed_out
    sandbox.close()


def test_a_fork_bomb_is_contained(bubblewrap: Backend) -> None:
    sandbox = bubblewrap.acquire(SandboxSpec(limits=Limits(pids=32)))
    namespace = namespace_of(sandbox)
    bomb = ("import os, time\nn = 0\ntry:\n while True:\n  if os.fork() == 0: time.sleep(60)\n  n += 1\n"
            "except OSError: print(n)")
    result = sandbox.exec(["python3", "-c", bomb], deadline_s=30)
    assert result.exit_code == 0 and 20 <= int(result.stdout) <= 32
    assert len(processes_in(namespace)) == 1
    endless = sandbox.exec(["sh", "-c", "b() { b | b; }; b & exec sleep 60"], deadline_s=1)
    assert endless.timed_out
    assert sandbox.exec(["echo", "next"]).stdout == b"next\n"
    sandbox.close()


def test_the_disk_of_a_sandbox_is_limited(bubblewrap: Backend) -> None:
    needs(bubblewrap, "workspace_limit")
    sandbox = bubblewrap.acquire(SandboxSpec(limits=Limits(workspace_mb=4, file_mb=64)))
    fill = "head -c 3000000 /dev/zero > a; head -c 3000000 /dev/zero > /tmp/b"
    result = sandbox.exec(["sh", "-c", fill])
    assert result.exit_code != 0 and b"No space left" in result.stderr
    assert shell(sandbox, "rm a; echo room > c; cat c") == b"room\n"
    sandbox.close()


def test_a_dead_agent_is_a_broken_sandbox_and_no_other_breaks(bubblewrap: Backend) -> None:
    one, two = bubblewrap.acquire(SandboxSpec(files={"a": b"1"})), bubblewrap.acquire(SandboxSpec())
    agent, = processes_in(namespace_of(one))
    os.kill(agent, signal.SIGKILL)
    wait_for_end([agent])
    for _ in range(2):
        with pytest.raises(SandboxError) as caught:
            one.exec(["echo", "x"])
        assert caught.value.kind == "sandbox_broken"
    assert one.read("a") == b"1"
    assert two.exec(["echo", "x"]).stdout == b"x\n"
    one.close()
    two.close()


def test_a_lease_ends(bubblewrap: Backend) -> None:
    sandbox = bubblewrap.acquire(SandboxSpec(lease_s=0.5))
    with pytest.raises(SandboxError) as caught:
        sandbox.exec(["sleep", "60"], deadline_s=60)
    assert caught.value.kind == "sandbox_broken"
    sandbox.close()
    assert bubblewrap.acquire(SandboxSpec()).exec(["echo", "x"]).stdout == b"x\n"
