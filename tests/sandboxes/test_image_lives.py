"""Sandboxes over an image: its programs and none of the host's, as closed as over the host's own."""

from __future__ import annotations

import io
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from artifacts.store import DirectoryStore
from sandboxes.bubblewrap import BubblewrapBackend
from sandboxes.sandbox import Sandbox, SandboxSpec
from schemas.errors import SandboxError
from tests.sandboxes.conftest import open_here
from tests.sandboxes.host import mounts_of, processes_in
from tests.sandboxes.rootfs import make_root, saved, tar_of


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_root(tmp_path_factory.mktemp("image") / "root, with: odd\\name")


def shell(sandbox: Sandbox, text: str) -> str:
    result = sandbox.exec(["sh", "-c", text])
    assert result.exit_code == 0, result
    return result.stdout.decode()


def test_programs_are_the_images_and_nothing_of_the_host_is_there(bubblewrap: BubblewrapBackend, small: Path,
                                                                  tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    before = mounts_of()
    sandbox = bubblewrap.acquire(SandboxSpec(image=str(small), files={"a": b"mine"}))
    assert shell(sandbox, "cat /etc/os-release a; id -u; id -un") == "ID=small\nmine1000\nsandbox\n"
    assert shell(sandbox, "ls /").split() == [
        "bin", "dev", "etc", "lib", "lib64", "opt", "proc", "tmp", "usr", "workspace"]
    assert sandbox.exec(["python3", "--version"]).exit_code == 127
    for path in (tmp_path / "secret", small, Path("/usr/share"), Path("/opt/python"), Path("/sys"), Path("/var")):
        assert sandbox.exec(["test", "-e", str(path)]).exit_code == 1, path
    assert "PATH=/usr/local/sbin:" in shell(sandbox, "env")
    assert mounts_of() == before
    sandbox.close()


def test_an_image_cannot_be_written_nor_its_shell_be_read(bubblewrap: BubblewrapBackend, small: Path) -> None:
    sandbox = bubblewrap.acquire(SandboxSpec(image=str(small)))
    for path in ("/x", "/etc/passwd", "/usr/bin/x", "/etc/headrace/sh", "/dev/x", "/opt/x",
                 "/proc/sys/kernel/hostname"):
        assert sandbox.exec(["sh", "-c", f"echo y >> {path}"]).exit_code == 2, path
    assert sandbox.exec(["sh", "-c", "rm -rf /usr /etc; chmod 777 /"]).exit_code == 1
    for path in ("/workspace/x", "/tmp/x", "/dev/shm/x", "/dev/null"):
        assert sandbox.exec(["sh", "-c", f"echo y >> {path}"]).exit_code == 0, path
    for look in ("cat /etc/headrace/sh", "cat /proc/1/environ", "ls /proc/1/fd"):
        assert b"Permission denied" in sandbox.exec(look.split()).stderr, look
    sandbox.close()
    again = bubblewrap.acquire(SandboxSpec(image=str(small)))
    assert shell(again, "cat /etc/os-release; ls -A /workspace /tmp /dev/shm") == (
        "ID=small\n/dev/shm:\n\n/tmp:\n\n/workspace:\n")
    again.close()


def test_deadline_session_snapshot_and_processes_hold_over_an_image(bubblewrap: BubblewrapBackend, small: Path) -> None:
    sandbox = bubblewrap.acquire(SandboxSpec(image=str(small), files={"a": b"1"}))
    plain = bubblewrap.acquire(SandboxSpec(files={"a": b"1"}))
    assert sandbox.snapshot() == plain.snapshot()
    space = namespace_of_image(sandbox)
    assert sandbox.exec(["sh", "-c", "echo kept; setsid sleep 60 & sleep 60"], deadline_s=0.5).stdout == b"kept\n"
    assert processes_in(space) == []
    assert sandbox.session("shell").run("cd /usr; ls").stdout == b"bin\nlib\n"
    sandbox.write("b", b"2")
    moved = bubblewrap.acquire(SandboxSpec(workspace=sandbox.snapshot()))
    assert moved.read("b") == b"2"
    for one in (sandbox, plain, moved):
        one.close()


def namespace_of_image(sandbox: Sandbox) -> str:
    return shell(sandbox, "ls -l /proc/self/ns/pid").split("-> ")[1].strip()


def test_mounts_and_further_paths_lie_over_an_image_whatever_is_there(bubblewrap: BubblewrapBackend, small: Path,
                                                                      tmp_path: Path) -> None:
    """A link of the image where a mount goes must not lead the mount out onto the host."""
    outside = tmp_path / "outside"
    outside.mkdir()
    archive = tmp_path / "hostile.tar"
    layers = [tar_of([("app", str(outside)), ("tests", "/etc"), ("workspace", str(outside)), ("tmp", str(outside)),
                      ("dev", str(outside)), ("proc", str(outside)), ("opt/tools", b"a file in the way")])]
    archive.write_bytes(tar_of(saved([tar_of_folder(small), *layers], ["LANG=de_DE", "HOME=/root", "A=1"]).items()))
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "data").write_text("42")
    sandbox = bubblewrap.acquire(SandboxSpec(
        image=str(archive), files={"a": b"mine"}, aliases=["/app"], environment={"B": "2"},
        readonly={"/tests": tools, "/opt/tools": tools, "/opt/tools/data": Path("/dev/null")}))
    assert shell(sandbox, "cat /app/a /tests/data; echo more > /app/b; cat b") == "mine42more\n"
    assert sandbox.exec(["test", "-s", "/opt/tools/data"]).exit_code == 1
    assert shell(sandbox, 'echo "$A $B $HOME $LANG $TZ"; touch /tmp/x') == "1 2 /workspace C.UTF-8 UTC\n"
    assert list(outside.iterdir()) == []
    sandbox.close()


def tar_of_folder(folder: Path) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        tar.add(folder, arcname=".")
    return made.getvalue()


def test_by_digest_and_by_eight_threads(bubblewrap: BubblewrapBackend, small: Path) -> None:
    name = bubblewrap.identify(str(small))
    assert name.startswith("sha256:") and bubblewrap.identify("") == "host"

    def live(number: int) -> str:
        sandbox = bubblewrap.acquire(SandboxSpec(image=(name, str(small))[number % 2], files={"n": b"%d" % number}))
        try:
            return shell(sandbox, "cat n /etc/os-release")
        finally:
            sandbox.close()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(live, range(24))) == [f"{number}ID=small\n" for number in range(24)]


def test_an_image_without_what_a_sandbox_needs_is_told(bubblewrap: BubblewrapBackend, tmp_path: Path) -> None:
    broken = tmp_path / "broken.tar"
    broken.write_bytes(tar_of([("bin/sh", b"no program at all")]))
    with pytest.raises(SandboxError) as caught:
        bubblewrap.acquire(SandboxSpec(image=str(broken)))
    assert caught.value.kind == "sandbox_start"
    with pytest.raises(SandboxError) as caught:
        bubblewrap.acquire(SandboxSpec(image=str(tmp_path / "absent")))
    assert caught.value.kind == "image"
    assert bubblewrap.open_count == 0


def test_backends_without_images_refuse(tmp_path: Path, artifacts: DirectoryStore, small: Path) -> None:
    backend = open_here("process", tmp_path / "home", artifacts)
    with pytest.raises(SandboxError) as caught:
        backend.acquire(SandboxSpec(image=str(small)))
    assert caught.value.kind == "unsupported" and "images" in caught.value.what
    backend.close()
