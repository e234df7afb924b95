"""The docker backend and its engine: images, what is left behind and by whom, and an engine that is not there."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import pytest
from docker.types import Mount

from artifacts.store import DirectoryStore
from sandboxes import docker_reaper, open_backend, probe, reaper
from sandboxes.docker_backend import DockerBackend
from sandboxes.docker_engine import Engine
from sandboxes.sandbox import SandboxSpec
from schemas.errors import SandboxError, UnavailableError
from schemas.ids import new_id
from schemas.settings import Settings
from tests.conftest import require_real
from tests.docker_engine import DockerEngine, engine_here
from tests.sandboxes.host import descriptors_of
from tests.sandboxes.rootfs import make_root
from tests.sandboxes.test_lives import start_owner
from tests.unprivileged import USER, command_as_user, environment

OURS = {"label": docker_reaper.OWNER}


@pytest.fixture
def docker(docker_engine: DockerEngine, tmp_path: Path, artifacts: DirectoryStore) -> Iterator[DockerBackend]:
    backend = DockerBackend(tmp_path / "home" / "sandboxes", artifacts)
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def tiny(docker_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image of a shell and a few programs, made of this machine's files; nothing is downloaded."""
    root = make_root(tmp_path_factory.mktemp("image") / "root")
    shutil.copy(os.path.realpath(shutil.which("head") or ""), root / "usr/bin/head")
    for name, mode in (("own", 0o755), ("open", 0o777)):
        (root / name).mkdir()
        (root / name).chmod(mode)
    (root / "own" / "greet").write_text("#!/bin/sh\necho from the image\n")
    (root / "own" / "greet").chmod(0o755)
    made = BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        archive.add(root, ".")
    engine, name = Engine(), f"headrace-test:{new_id()}"
    engine.api.import_image_from_data(made.getvalue(), *name.split(":"), changes=[
        "ENV PATH=/own:/bin", "ENV COLOUR=blue", "VOLUME /data", 'ENTRYPOINT ["/bin/false"]', "USER nobody",
        "HEALTHCHECK --interval=1s CMD /bin/false"])
    yield name
    engine.api.remove_image(name)
    engine.close()


def test_an_image_by_name_is_what_commands_find(docker: DockerBackend, tiny: str) -> None:
    before = volumes(docker)
    sandbox = docker.acquire(SandboxSpec(image=tiny, files={"a": b"x"}))
    try:
        assert sandbox.exec(["greet"]).stdout == b"from the image\n"
        said = sandbox.exec(["sh", "-c", "id -u; cat a; echo $COLOUR; cat /etc/os-release"])
        assert said.stdout.split() == [b"1000", b"xblue", b"ID=small"]
        assert sandbox.exec(["cat"], stdin=b"given").stdout == b"given"
        assert b"Read-only" in sandbox.exec(["sh", "-c", "echo y > /open/x"]).stderr
        assert sandbox.session("shell").run("cat a").stdout == b"x"
        assert "Health" not in docker.engine.api.inspect_container(sandbox.container)["State"]
        absent = sandbox.session("python").run("1")
        assert absent.exit_code == 127 and b"python3" in absent.stderr
    finally:
        sandbox.close()
    assert docker.identify(tiny).startswith("sha256:") and docker.identify("") == "host"
    assert volumes(docker) == before  # the image's own is gone too


def test_an_unknown_image_is_said_and_not_fetched(docker: DockerBackend) -> None:
    with pytest.raises(SandboxError) as caught:
        docker.acquire(SandboxSpec(image="no-such:image"))
    assert caught.value.kind == "image" and "docker pull no-such:image" in caught.value.hint


def test_an_image_without_a_shell_is_said(docker: DockerBackend) -> None:
    made = BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("empty"))
    name = f"headrace-test:{new_id()}"
    docker.engine.api.import_image_from_data(made.getvalue(), *name.split(":"))
    try:
        with pytest.raises(SandboxError, match="/bin/sh") as caught:
            docker.acquire(SandboxSpec(image=name))
        assert caught.value.kind == "sandbox_start"
        assert docker.engine.api.containers(all=True, filters=OURS) == []
    finally:
        docker.engine.api.remove_image(name)


def test_lives_leak_nothing(docker: DockerBackend, tmp_path: Path) -> None:
    (tmp_path / "given").mkdir(mode=0o700)

    def live() -> None:
        given = {"/given": tmp_path / "given"}
        sandbox = docker.acquire(SandboxSpec(files={"a": b"x"}, readonly=given, aliases=["/app"]))
        session = sandbox.session("shell")
        assert session.run("cat a; sleep 60 &").stdout == b"x"
        assert sandbox.exec(["cat", "a"]).stdout == b"x"
        sandbox.close()

    live()
    with pytest.raises(SandboxError, match="cannot be copied"):
        docker.acquire(SandboxSpec(readonly={"/given": tmp_path}))
    before, threads, kept = descriptors_of(), _threads(), volumes(docker)
    for _ in range(4):
        live()
    # One more at most: a connection closes right after its last word.
    assert descriptors_of() <= before + 1 and _threads() == threads
    assert docker.engine.api.containers(all=True, filters=OURS) == [] and volumes(docker) == kept
    assert [path.name for path in docker.folder.path.iterdir()] == [reaper.LOCK]


def volumes(docker: DockerBackend) -> set[str]:
    return {one["Name"] for one in docker.engine.api.volumes().get("Volumes") or ()}


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def test_what_is_killed_leaves_nothing(docker: DockerBackend, tmp_path: Path) -> None:
    """The engine removes the containers of an owner that ended without a word, and their volumes."""
    home, before = tmp_path / "other", volumes(docker)
    owner, said = start_owner(home, "docker")
    mine = {"label": f"{docker_reaper.OWNER}={said['token']}"}
    containers = docker.engine.api.containers(all=True, filters=mine)
    assert len(containers) == 3 and docker.reap() == 0
    owner.kill()
    owner.communicate()
    for one in containers:
        with contextlib.suppress(docker.engine.missing):  # it is gone already
            docker.engine.api.wait(one["Id"], condition="removed", timeout=60)
    assert volumes(docker) == before
    assert reaper.reap(home / "sandboxes") == 1


def test_the_reaper_takes_what_dead_owners_left_and_leaves_the_living_alone(
        docker: DockerBackend, tmp_path: Path) -> None:
    before = volumes(docker)
    sandbox = docker.acquire(SandboxSpec(files={"a": b"x"}, aliases=["/app"]))
    dead = {**docker_reaper.labels(docker.folder, "", 60), docker_reaper.OWNER: "1-1-1-dead"}
    elsewhere = {**dead, docker_reaper.HOST: "another-machine"}
    old = {**elsewhere, docker_reaper.EXPIRES: f"{time.time() - 7200:.0f}"}
    unknown = {docker_reaper.OWNER: "of-another-program"}
    made = {name: _never_started(docker, labels) for name, labels in {
        "dead": dead, "elsewhere": elsewhere, "old": old, "unknown": unknown}.items()}
    try:
        assert docker.reap() == 2
        left = {one["Id"] for one in docker.engine.api.containers(all=True, filters=OURS)}
        assert left == {sandbox.container, made["elsewhere"], made["unknown"]}
        assert sandbox.exec(["cat", "/app/a"]).stdout == b"x"
        assert volumes(docker) - before == {
            f"headrace-{sandbox.id}", "headrace-test-elsewhere", "headrace-test-unknown"}
    finally:
        sandbox.close()
        for name in ("elsewhere", "unknown"):
            docker.engine.remove(made[name], [f"headrace-test-{name}"])


def test_only_a_free_lock_or_none_means_dead(tmp_path: Path) -> None:
    owner = reaper.OwnerFolder(tmp_path)
    found = docker_reaper.labels(owner, "", 60)
    assert not docker_reaper.is_dead(found)
    unreadable = tmp_path / "of-another-user"
    (unreadable / reaper.LOCK).mkdir(parents=True)
    assert not docker_reaper.is_dead({**found, docker_reaper.OWNER: unreadable.name})
    owner.remove()
    assert docker_reaper.is_dead(found)
    assert not docker_reaper.is_dead({docker_reaper.OWNER: "x"})


def _never_started(docker: DockerBackend, labels: dict[str, str]) -> str:
    name = {"1-1-1-dead": "dead", "of-another-program": "unknown"}[labels[docker_reaper.OWNER]]
    if labels.get(docker_reaper.HOST, "") == "another-machine":
        name = "old" if float(labels[docker_reaper.EXPIRES]) < time.time() else "elsewhere"
    docker.engine.api.create_volume(f"headrace-test-{name}", labels=labels)
    mounts = [Mount("/data", None, type="volume")] if name == "dead" else []
    return docker.engine.create(f"headrace-test-{new_id()}", docker.view().image, ["true"], {}, labels, mounts=mounts)


def test_an_engine_that_ends_breaks_its_sandboxes_and_hangs_nobody(
        tmp_path: Path, artifacts: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    engine = engine_here()
    if not engine.is_ours:
        pytest.skip("the engine of this machine is not ours to end")
    monkeypatch.setenv("DOCKER_HOST", engine.address)
    backend = DockerBackend(tmp_path / "sandboxes", artifacts)
    sandbox, idle = backend.acquire(SandboxSpec()), backend.acquire(SandboxSpec(files={"a": b"x"}))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(sandbox.exec, ["sleep", "600"], deadline_s=600)
        engine.stop()
        for use in (running.result, lambda: idle.exec(["true"]), lambda: idle.session("shell").run("true")):
            with pytest.raises(SandboxError) as caught:
                use()
            assert caught.value.kind == "sandbox_broken"
    with pytest.raises(SandboxError) as caught:
        backend.acquire(SandboxSpec())
    assert caught.value.kind == "sandbox_start"
    backend.close()
    assert list((tmp_path / "sandboxes").iterdir()) == []


def test_no_engine_is_one_error_with_a_way_on(tmp_path: Path, artifacts: DirectoryStore,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")
    with pytest.raises(UnavailableError) as caught:
        open_backend(Settings(home=str(tmp_path / "home"), sandbox_backend="docker"), artifacts)
    assert "no engine answers" in caught.value.what and "DOCKER_HOST" in caught.value.hint
    assert "\n" not in caught.value.what
    assert "no engine answers" in str(probe("docker"))
    assert not (tmp_path / "home" / "sandboxes").exists()


def test_without_the_package_it_says_how_to_get_it(tmp_path: Path, artifacts: DirectoryStore,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(UnavailableError) as caught:
        DockerBackend(tmp_path / "sandboxes", artifacts)
    assert caught.value.hint == "pip install 'headrace[docker]'"


def test_opened_by_name(docker_engine: DockerEngine, tmp_path: Path, artifacts: DirectoryStore) -> None:
    assert probe("docker") is None
    backend = open_backend(Settings(home=str(tmp_path / "home"), sandbox_backend="docker"), artifacts)
    assert backend.name == "docker"
    backend.close()
    assert list((tmp_path / "home" / "sandboxes").iterdir()) == []


ORDINARY = """
import os, sys
from pathlib import Path
from artifacts.store import DirectoryStore
from sandboxes import open_backend
from sandboxes.sandbox import SandboxSpec
from schemas.settings import Settings
assert os.geteuid() != 0
home = Path(sys.argv[1])
backend = open_backend(Settings(home=str(home), sandbox_backend="docker"), DirectoryStore(home / "artifacts"))
sandbox = backend.acquire(SandboxSpec(files={"f/a": b"x"}, aliases=["/app"]))
assert sandbox.exec(["sh", "-c", "id -u; rm -r f; mkdir f; echo y > /app/f/b; chmod 0 f/b"]).stdout == b"USER\\n"
taken = sandbox.snapshot()
other = backend.acquire(SandboxSpec(workspace=taken))
assert other.snapshot() == taken
assert other.exec(["sh", "-c", "sleep 60 & sleep 60"], deadline_s=0.5).timed_out
assert other.session("shell").run("ls f").stdout == b"b\\n"
assert other.exec(["sh", "-c", "echo y > /usr/x"]).exit_code != 0
sandbox.close()
other.close()
backend.close()
assert list((home / "sandboxes").iterdir()) == []
print("done")
""".replace("USER", USER)


def test_for_an_ordinary_user(docker_engine: DockerEngine) -> None:
    """One who may use the engine: the workspace is a folder of theirs, and commands run as themselves."""
    if os.geteuid():
        require_real("root", "this test takes the place of an ordinary user")
    link = Path(docker_engine.address.removeprefix("unix://"))
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (link, link.parent)}
    with tempfile.TemporaryDirectory() as home:
        Path(home).chmod(0o777)
        try:
            link.chmod(0o666)
            link.parent.chmod(modes[link.parent] | 0o005)
            result = subprocess.run(
                command_as_user([sys.executable, "-c", ORDINARY, home]), capture_output=True, text=True, cwd="/",
                timeout=120, env=environment(HOME=home))
        finally:
            for path, mode in modes.items():
                path.chmod(mode)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "done\n"
