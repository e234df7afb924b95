"""Opening by settings: each thing that can be wrong has its own error, with a way on."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import sandboxes.process
from artifacts.store import DirectoryStore
from sandboxes import open_backend, probe
from sandboxes.sandbox import SandboxSpec
from schemas.errors import ConfigError, UnavailableError
from schemas.settings import Settings
from tests.conftest import REPOSITORY, require_real
from tests.unprivileged import command_as_user, environment


def opened(home: Path, artifacts: DirectoryStore, name: str) -> None:
    open_backend(Settings(home=str(home), sandbox_backend=name), artifacts).close()


def test_an_unknown_backend_is_a_mistake_with_a_suggestion(tmp_path: Path, artifacts: DirectoryStore) -> None:
    with pytest.raises(ConfigError) as caught:
        opened(tmp_path, artifacts, "bublewrap")
    assert "bublewrap" in caught.value.paragraph() and "did you mean `bubblewrap`?" in caught.value.paragraph()
    with pytest.raises(ConfigError) as caught:
        opened(tmp_path, artifacts, "xyz")
    assert "`bubblewrap`, `docker` and `process`" in caught.value.hint


def test_a_missing_bubblewrap_names_the_two_ways_on(tmp_path: Path, artifacts: DirectoryStore,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError) as caught:
        opened(tmp_path / "home", artifacts, "bubblewrap")
    text = caught.value.paragraph()
    assert "no `bwrap`" in text and "apt-get install bubblewrap" in text and "--sandbox process" in text
    assert caught.value.exit_code == 2
    assert list((tmp_path / "home" / "sandboxes").iterdir()) == []
    assert "no `bwrap`" in str(probe("bubblewrap"))


def test_a_bubblewrap_that_fails_says_why(tmp_path: Path, artifacts: DirectoryStore,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    if why := probe("bubblewrap"):
        require_real("bubblewrap", why)
    with tempfile.TemporaryDirectory() as folder:  # where another user can reach it
        Path(folder).chmod(0o755)
        broken = Path(folder, "bwrap")
        broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
        broken.chmod(0o755)
        monkeypatch.setenv("PATH", folder)
        with pytest.raises(UnavailableError, match="No permissions to create new namespace"):
            opened(tmp_path / "home", artifacts, "bubblewrap")
    assert list((tmp_path / "home" / "sandboxes").iterdir()) == []


def test_a_home_that_cannot_be_written_is_a_mistake(tmp_path: Path, artifacts: DirectoryStore) -> None:
    (tmp_path / "home").write_text("a file")
    for name in ("bubblewrap", "process"):
        with pytest.raises(ConfigError) as caught:
            opened(tmp_path / "home", artifacts, name)
        assert str(tmp_path / "home") in str(caught.value) and "--home" in caught.value.hint


def test_a_relative_home(tmp_path: Path, artifacts: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("bubblewrap", "process"):
        if why := probe(name):
            require_real(name, why)
        backend = open_backend(Settings(home=".headrace", sandbox_backend=name), artifacts)
        monkeypatch.chdir("/")
        sandbox = backend.acquire(SandboxSpec(files={"a": b"x"}))
        assert sandbox.exec(["cat", "a"]).stdout == b"x"
        backend.close()
        monkeypatch.chdir(tmp_path)
        assert list((tmp_path / ".headrace" / "sandboxes").iterdir()) == []


def test_process_warns_once(tmp_path: Path, artifacts: DirectoryStore, monkeypatch: pytest.MonkeyPatch,
                            capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sandboxes.process, "_warned", False)
    for _ in range(3):
        opened(tmp_path, artifacts, "process")
    assert capfd.readouterr().err.count("does not isolate") == 1
    assert not sandboxes.process.ProcessBackend.isolates


def test_descriptors_suffice_for_many_sandboxes(tmp_path: Path, artifacts: DirectoryStore) -> None:
    opened(tmp_path, artifacts, "process")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == resource.RLIM_INFINITY or soft >= min(8192, hard)


def test_importing_the_room_is_light() -> None:
    code = "import sys, sandboxes; print(*sys.modules)"
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert not {"msgspec", "asyncio", "subprocess", "json", "schemas.errors"} & set(listed.stdout.split())


UNPRIVILEGED = """
import os, sys
from pathlib import Path
from artifacts.store import DirectoryStore
from sandboxes import open_backend
from sandboxes.sandbox import Limits, SandboxSpec
from schemas.settings import Settings
assert os.geteuid() != 0
home = Path(sys.argv[1])
backend = open_backend(Settings(home=str(home)), DirectoryStore(home / "artifacts"))
sandbox = backend.acquire(SandboxSpec(files={"f/a": b"x"}))
assert sandbox.exec(["sh", "-c", "id -u; rm -r f; mkdir f; ls -A f; echo y > f/b; chmod 0 f/b"]).stdout == b"1000\\n"
taken = sandbox.snapshot()
other = backend.acquire(SandboxSpec(workspace=taken, limits=Limits(pids=40, memory_mb=256)))
assert other.snapshot() == taken
assert other.exec(["ls", "f"]).stdout == b"b\\n"
spoil = "import os\\nfor n in (0, 1, 2): os.fchmod(n, 0)"
assert other.exec(["python3", "-c", spoil], stdin=b"x").exit_code == 0
assert other.exec(["cat"], stdin=b"next").stdout == b"next"
for path in ("/x", "/etc/x", "/etc/passwd", "/dev/x", "/usr/x", "/opt/python/bin/x", "/proc/sys/kernel/core_pattern"):
    assert other.exec(["sh", "-c", "echo y >> " + path]).exit_code == 2, path
assert b"Permission denied" in other.exec(["ls", "/proc/1/fd"]).stderr
assert other.exec(["sh", "-c", "sleep 60 & sleep 60"], deadline_s=0.3).timed_out
bomb = '''import os, time
n = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(60)
        n += 1
except OSError:
    print(n)'''
result = other.exec(["python3", "-c", bomb], deadline_s=15)
assert 20 <= int(result.stdout) <= 40, result
big = other.exec(["python3", "-c", "x = b'x' * (300 << 20)"])
assert big.exit_code == 1 and b"MemoryError" in big.stderr, big
sandbox.close()
other.close()
backend.close()
assert list((home / "sandboxes").iterdir()) == []
print("done", sorted(backend.capabilities))
"""


def test_without_any_privilege() -> None:
    """A user namespace, and rlimits in place of cgroups. `make unprivileged` runs all tests of sandboxes so."""
    if why := probe("bubblewrap"):
        require_real("bubblewrap", why)
    with tempfile.TemporaryDirectory() as home:
        Path(home).chmod(0o777)
        command = command_as_user([sys.executable, "-c", UNPRIVILEGED, home])
        result = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=120, env=environment())
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("done") and "'oom'" not in result.stdout
