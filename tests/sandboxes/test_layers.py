"""Set-up layers: run once, found again by content, told with their output when they fail, never half."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from artifacts.store import DirectoryStore
from sandboxes.bubblewrap import BubblewrapBackend
from sandboxes.cache import Cache
from sandboxes.sandbox import Limits, Sandbox, SandboxSpec, Setup
from schemas.errors import SandboxError
from tests.conftest import REPOSITORY
from tests.sandboxes.conftest import open_here
from tests.sandboxes.host import mounts_of, namespace_of, processes_in, wait_for_end
from tests.sandboxes.rootfs import make_root

COMMANDS = ["mkdir -p /opt/made && echo one > /opt/made/f && id -u > /opt/made/who",
            "cat given > /opt/made/copy; rm given",
            "head -c 20 /dev/urandom | cksum > made-here"]
SETUP = Setup(commands=COMMANDS, files={"given": b"from the task"})


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_root(tmp_path_factory.mktemp("image") / "root")


@pytest.fixture(params=["host", "image"])
def image(request: pytest.FixtureRequest, small: Path) -> str:
    return str(small) if request.param == "image" else ""


def shell(sandbox: Sandbox, text: str) -> str:
    result = sandbox.exec(["sh", "-c", text])
    assert result.exit_code == 0, result
    return result.stdout.decode()


def layers_in(backend: BubblewrapBackend) -> list[str]:
    folder = backend.root / "layers"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def opened(backend: BubblewrapBackend, spec: SandboxSpec, text: str) -> str:
    sandbox = backend.acquire(spec)
    try:
        return shell(sandbox, text)
    finally:
        sandbox.close()


def test_what_commands_left_is_there_for_all_and_they_ran_once(bubblewrap: BubblewrapBackend, image: str) -> None:
    before = mounts_of()
    setup = msgspec.structs.replace(SETUP, commands=[*COMMANDS[:2], "cat /proc/sys/kernel/random/uuid > made-here"])
    spec = SandboxSpec(image=image, setup=setup, files={"own": b"mine"})
    look = "cat /opt/made/f /opt/made/who /opt/made/copy; ls; cat made-here own; id -u"
    first = opened(bubblewrap, spec, look)
    assert first.startswith("one\n0\nfrom the taskmade-here\nown\n") and first.endswith("mine1000\n")
    assert [opened(bubblewrap, spec, look) for _ in range(3)] == [first] * 3
    layer, = layers_in(bubblewrap)
    assert sorted(path.name for path in (bubblewrap.root / "layers" / layer).iterdir()) == ["layer.json", "root"]
    sandbox = bubblewrap.acquire(spec)
    for path in ("/opt/made/f", "/opt/made/new", "/etc/passwd", "/new"):
        assert sandbox.exec(["sh", "-c", f"echo x >> {path}"]).exit_code == 2, path
    assert sandbox.exec(["rm", "-rf", "/opt/made"]).exit_code == 1
    sandbox.close()
    assert mounts_of() == before
    assert "made" not in opened(bubblewrap, SandboxSpec(image=image), "ls /opt")


def test_an_image_can_be_changed_in_all_its_parts(bubblewrap: BubblewrapBackend, small: Path) -> None:
    setup = Setup(commands=["echo ID=changed > /etc/os-release; rm -r /usr/bin/setsid /usr/bin/chmod; mv /opt /srv",
                            "mkdir /opt; echo new > /usr/lib/new; chmod 700 /usr/lib/new; ln -s /usr/lib/new /link"])
    spec = SandboxSpec(image=str(small), setup=setup)
    assert opened(bubblewrap, spec, "cat /etc/os-release /link; ls -d /srv /opt") == "ID=changed\nnew\n/opt\n/srv\n"
    sandbox = bubblewrap.acquire(spec)
    assert sandbox.exec(["setsid", "true"]).exit_code == sandbox.exec(["chmod", "0", "x"]).exit_code == 127
    sandbox.close()
    assert opened(bubblewrap, SandboxSpec(image=str(small)), "cat /etc/os-release") == "ID=small\n"


def test_a_folder_that_is_removed_made_and_moved_is_whole_in_the_layer(bubblewrap: BubblewrapBackend,
                                                                       small: Path) -> None:
    """A layer showed names of which there were no files, when it was mounted again (fuse-overlayfs#306)."""
    setup = Setup(commands=["rm -rf /etc/apt; mkdir -p /etc/apt/b/c; mv /etc/apt/b /b; mkdir /etc/apt/new"])
    spec = SandboxSpec(image=str(small), setup=setup)
    look = "ls -A /etc/apt /b; ls -ld /etc/apt/new > /dev/null"
    assert opened(bubblewrap, spec, look) == "/b:\nc\n\n/etc/apt:\nnew\n"


def test_an_installer_that_would_become_another_user_is_told_not_to(bubblewrap: BubblewrapBackend,
                                                                    small: Path) -> None:
    setup = Setup(commands=["cat /etc/apt/apt.conf.d/* > /etc/apt/seen; touch /etc/apt/apt.conf.d/own"])
    spec = SandboxSpec(image=str(small), setup=setup)
    assert opened(bubblewrap, spec, "cat /etc/apt/seen; ls /etc/apt/apt.conf.d") == (
        'APT::Sandbox::User "root";\nown\n')


def test_files_can_be_given_away_in_name_only(bubblewrap: BubblewrapBackend, image: str, tmp_path: Path) -> None:
    """Packages have files of further owners, and nothing could be installed that has one."""
    setup = Setup(commands=["echo x > /opt/f && ln -s f /opt/l && chown 5:42 /opt/f && chown -h 7 /opt/l && cat /opt/f",
                            "! chown 0:0 /proc/sys/kernel/hostname 2>&1 || ! echo x > /proc/sys/kernel/hostname"])
    sandbox = bubblewrap.acquire(SandboxSpec(image=image, setup=setup))
    assert shell(sandbox, "cat /opt/f /opt/l") == "x\nx\n"
    if not image:
        assert sandbox.exec(["chown", "0", "x"]).exit_code == sandbox.exec(["chown", "5", "/tmp"]).exit_code == 1
    sandbox.close()
    layer, = (bubblewrap.root / "layers").glob("*/root/opt/f")
    assert layer.stat().st_uid == (65534 if os.geteuid() == 0 else os.geteuid())


def test_a_set_up_cannot_take_the_agents_shell_away(bubblewrap: BubblewrapBackend, image: str) -> None:
    forged = Setup(commands=["rm -rf /etc; mkdir -p /etc/headrace; echo forged > /etc/headrace/sh; exit 0"])
    sandbox = bubblewrap.acquire(SandboxSpec(image=image, setup=forged))
    assert sandbox.exec(["sh", "-c", "exit 7"]).exit_code == 7
    sandbox.close()


def test_the_hosts_programs_cannot_be_changed(bubblewrap: BubblewrapBackend) -> None:
    setup = Setup(commands=["! touch /usr/x && ! rm -f /usr/bin/true && ! touch /usr/local/lib/x && ! chmod 777 /usr"])
    bubblewrap.acquire(SandboxSpec(setup=setup)).close()
    assert not Path("/usr/x").exists()


def test_a_set_up_is_as_closed_as_any_sandbox(bubblewrap: BubblewrapBackend, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    closed = Setup(commands=[
        f"! test -e {tmp_path / 'secret'} && test $(grep -c : /proc/net/dev) = 1 && ! test -e /etc/shadow",
        "grep -q '^CapEff:.0*$' /proc/self/status && grep -q '^NoNewPrivs:.1' /proc/self/status",
        "! echo h > /proc/sysrq-trigger && ! echo x > /proc/sys/kernel/core_pattern && ! cat /etc/headrace/sh"])
    bubblewrap.acquire(SandboxSpec(setup=closed)).close()


@pytest.mark.parametrize("changed", [
    {"commands": [*COMMANDS, "true"]}, {"files": {"given": b"other"}}, {"files": {"given": b"from the task", "b": b""}},
    {"network": "host"}])
def test_the_key_is_all_that_decides(changed: dict[str, object], bubblewrap: BubblewrapBackend) -> None:
    spec = SandboxSpec(setup=SETUP)
    bubblewrap.acquire(spec).close()
    bubblewrap.acquire(msgspec.structs.replace(spec, files={"own": b"x"}, limits=Limits(pids=99), owner="o")).close()
    assert len(layers_in(bubblewrap)) == 1
    bubblewrap.acquire(SandboxSpec(setup=msgspec.structs.replace(SETUP, **changed))).close()
    assert len(layers_in(bubblewrap)) == 2


def test_environment_and_paths_are_those_of_the_sandbox_and_decide_too(bubblewrap: BubblewrapBackend) -> None:
    setup = Setup(commands=['cat /app/given > /opt/copy; echo "$COLOUR" >> /opt/copy'], files={"given": b"x"})
    for number, colour in enumerate(("blue", "red"), 1):
        spec = SandboxSpec(setup=setup, aliases=["/app"], environment={"COLOUR": colour})
        assert opened(bubblewrap, spec, "cat /opt/copy") == f"x{colour}\n"
        assert len(layers_in(bubblewrap)) == number


def test_a_restored_workspace_stands_on_the_same_layer(bubblewrap: BubblewrapBackend) -> None:
    sandbox = bubblewrap.acquire(SandboxSpec(setup=SETUP))
    sandbox.write("later", b"x")
    taken = sandbox.snapshot()
    sandbox.close()
    again = bubblewrap.acquire(SandboxSpec(setup=SETUP, workspace=taken))
    assert again.snapshot() == taken and shell(again, "cat /opt/made/f later") == "one\nx"
    again.close()
    assert len(layers_in(bubblewrap)) == 1


@pytest.mark.parametrize(("commands", "deadline_s", "told"), [
    # A build that failed said neither which command nor why (inspect_ai#504, #625).
    (["true", "echo said; echo why >&2; exit 5"], 30, ["command 2 of 2", "exit code 5", "said\nwhy", "echo said"]),
    (["/setup.sh"], 30, ["exit code 127", "not found"]), (["sleep 60"], 0.3, ["longer than the 0.3 s"]),
    (["yes"], 60, ["too much output", "y\ny"]), (["kill -9 $$"], 30, ["exit code 137", "(nothing)"])])
def test_a_failed_set_up_is_told_with_its_output_and_not_kept(
        commands: list[str], deadline_s: float, told: list[str], bubblewrap: BubblewrapBackend) -> None:
    spec = SandboxSpec(setup=Setup(commands=commands, deadline_s=deadline_s))
    for _ in range(2):
        with pytest.raises(SandboxError) as caught:
            bubblewrap.acquire(spec)
        assert caught.value.kind == "setup"
        assert all(text in str(caught.value) for text in told), str(caught.value)
        assert "no network" in caught.value.hint
    assert layers_in(bubblewrap) == [] and bubblewrap.open_count == 0


def test_a_set_up_that_fills_the_disk_is_stopped(bubblewrap: BubblewrapBackend,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """105 GB of containers (aimee#1951), 7,135 volumes (trajectoryRL#203): and every reward was 0."""
    monkeypatch.setattr("sandboxes.layers.LEFT_BYTES", 1 << 60)
    started = time.monotonic()
    with pytest.raises(SandboxError, match="are left on the disk") as caught:
        bubblewrap.acquire(SandboxSpec(setup=Setup(commands=["sleep 60"])))
    assert caught.value.kind == "setup" and time.monotonic() - started < 50
    assert layers_in(bubblewrap) == [] and bubblewrap.open_count == 0


def test_what_failed_once_is_tried_again(bubblewrap: BubblewrapBackend) -> None:
    """A clone or an install fails now and then, and must not fail for ever (inspect_ai#509)."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        ask = f"import socket; socket.create_connection({server.getsockname()!r}, 5)"
        spec = SandboxSpec(setup=Setup(commands=[f'python3 -c "{ask}"'], network="host"))
        with pytest.raises(SandboxError, match="refused"):
            bubblewrap.acquire(spec)
        server.listen()
        bubblewrap.acquire(spec).close()
    bubblewrap.acquire(spec).close()


def test_many_that_want_the_same_build_it_once_and_fail_together(tmp_path: Path, artifacts: DirectoryStore) -> None:
    owners = [open_here("bubblewrap", tmp_path / "home", artifacts) for _ in range(2)]
    spec = SandboxSpec(setup=Setup(commands=["sleep 0.3; cat /proc/sys/kernel/random/uuid > /opt/id"]))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: opened(owners[n % 2], spec, "cat /opt/id"), range(8)))  # type: ignore[arg-type]
    assert len(set(found)) == 1
    failing = SandboxSpec(setup=Setup(commands=["sleep 0.5; exit 1"]))

    def fail(number: int) -> str:
        with pytest.raises(SandboxError) as caught:
            owners[0].acquire(failing)
        return caught.value.kind

    started = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(fail, range(8))) == ["setup"] * 8
    assert time.monotonic() - started < 8 * 0.5  # not one after the other
    for owner in owners:
        owner.close()


BUILDER = """
import sys
from pathlib import Path
from artifacts.store import DirectoryStore
from sandboxes import open_backend
from sandboxes.sandbox import SandboxSpec, Setup
from schemas.settings import Settings
home = Path(sys.argv[1])
backend = open_backend(Settings(home=str(home)), DirectoryStore(Path(sys.argv[2])))
backend.acquire(SandboxSpec(setup=Setup(commands=["mkdir /opt/made; cat /proc/sys/kernel/random/uuid > /opt/made/id"])))
print("built", flush=True)
"""


@pytest.mark.parametrize("failpoint", ["layers:before_keep", ""])
def test_kill_9_while_a_layer_is_made(failpoint: str, tmp_path: Path, artifacts: DirectoryStore) -> None:
    backend = open_here("bubblewrap", tmp_path / "home", artifacts)
    assert isinstance(backend, BubblewrapBackend)
    text = BUILDER if failpoint else BUILDER.replace("mkdir /opt/made;", "mkdir /opt/made; sleep 600;")
    builder = subprocess.Popen([sys.executable, "-c", text, str(tmp_path / "home"), str(artifacts.root)],
                               cwd=REPOSITORY, stdout=subprocess.PIPE,
                               env={**os.environ, **({"HEADRACE_FAILPOINT": failpoint} if failpoint else {})})
    try:
        if not failpoint:
            half = _wait_for_half(tmp_path / "home/sandboxes/layers")
            assert Cache(half.parent).reap() == 0  # its maker lives
            builder.send_signal(signal.SIGKILL)
        output, _ = builder.communicate(timeout=60)
    finally:
        builder.kill()
    assert builder.returncode == -signal.SIGKILL and output == b""
    left, = (tmp_path / "home/sandboxes/layers").glob(".half-*")
    setup = Setup(commands=["mkdir /opt/made; cat /proc/sys/kernel/random/uuid > /opt/made/id"])
    one = opened(backend, SandboxSpec(setup=setup), "cat /opt/made/id")
    assert opened(backend, SandboxSpec(setup=setup), "cat /opt/made/id") == one
    long_ago = time.time() - 3600
    os.utime(left, (long_ago, long_ago))
    backend.reap()
    assert len(layers_in(backend)) == 1
    backend.close()


def _wait_for_half(folder: Path) -> Path:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for path in folder.glob(".half-*/root/opt/made"):
            return path.parent.parent.parent
        time.sleep(0.02)
    raise AssertionError("no set-up has begun")


def test_a_layer_whose_workspace_was_lost_is_made_again(bubblewrap: BubblewrapBackend, artifacts: DirectoryStore,
                                                       tmp_path: Path) -> None:
    bubblewrap.acquire(SandboxSpec(setup=SETUP)).close()
    other = open_here("bubblewrap", tmp_path / "home", DirectoryStore(tmp_path / "other artifacts"))
    sandbox = other.acquire(SandboxSpec(setup=SETUP))
    assert shell(sandbox, "cat /opt/made/f") == "one\n"
    sandbox.close()
    assert opened(bubblewrap, SandboxSpec(setup=SETUP), "cat /opt/made/f") == "one\n"
    other.close()


def test_network_is_there_only_where_it_is_asked_for(bubblewrap: BubblewrapBackend) -> None:
    devices = "grep -c : /proc/net/dev > /opt/devices"
    there = str(sum(":" in line for line in Path("/proc/net/dev").read_text().splitlines()))
    for setup, network, inside in (("none", "host", there), ("host", "none", "1")):
        spec = SandboxSpec(setup=Setup(commands=[devices], network=setup), network=network)  # type: ignore[arg-type]
        assert opened(bubblewrap, spec, "cat /opt/devices; grep -c : /proc/net/dev").split() == [
            there if setup == "host" else "1", inside]


@pytest.fixture
def server() -> Iterator[int]:
    import http.server
    import threading

    with http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as serving:
        thread = threading.Thread(target=serving.serve_forever, daemon=True)
        thread.start()
        yield serving.server_port
        serving.shutdown()
        thread.join()


def test_the_hosts_network_reaches_what_the_host_reaches(bubblewrap: BubblewrapBackend, server: int,
                                                        image: str) -> None:
    ask = f"import socket; socket.create_connection(('127.0.0.1', {server}), 5); print('reached')"
    alone = bubblewrap.acquire(SandboxSpec())
    assert b"refused" in alone.exec(["python3", "-c", ask]).stderr
    shared = bubblewrap.acquire(SandboxSpec(network="host", image=image))
    if not image:
        assert shared.exec(["python3", "-c", ask]).stdout == b"reached\n"
    if os.path.exists("/etc/resolv.conf"):
        assert shell(shared, "cat /etc/resolv.conf") == Path("/etc/resolv.conf").read_text()
    namespace = shell(shared, "ls -l /proc/self/ns/net").split("-> ")[1].strip()
    assert namespace == os.readlink("/proc/self/ns/net")
    assert shared.exec(["sh", "-c", "cat /etc/shadow || cat /etc/ssl/private/*"]).exit_code != 0
    space = namespace_of(alone)
    for one in (alone, shared):
        one.close()
    wait_for_end(processes_in(space))
