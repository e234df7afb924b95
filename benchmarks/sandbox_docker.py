"""What a life in a container costs beside one in bubblewrap: both whole, with all limits, a command and its disposal.

    python benchmarks/sandbox_docker.py [--quick] [--seed S]

The comparison is with the bare calls of the engine: create, start, exec, remove. An engine of its own is started where
none answers; where none can run it says so. Nothing is drawn at random, so the seed changes nothing.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from harness import REPOSITORY, answer, interleaved, parser, quantile, ratio, scratch

from artifacts import open_store
from sandboxes import open_backend
from sandboxes.docker_backend import DockerBackend
from sandboxes.sandbox import Backend, SandboxSpec
from schemas.settings import Settings

sys.path.append(str(REPOSITORY))
from tests.docker_engine import DockerEngine

TARGET = ">= 30"
LIVES = "life in a container (create, start, exec, remove) against one in bubblewrap"
SCRIPT = ["/bin/sh", "-c", "echo $((6 * 7))"]
BATCH = 5


def main() -> int:
    rounds = 4 if parser(__doc__).parse_args().quick else 15
    try:
        engine = DockerEngine()
    except RuntimeError as why:
        return 0 if answer(LIVES, None, "x", TARGET, str(why)) else 1
    os.environ["DOCKER_HOST"] = engine.address
    try:
        with scratch() as home:
            return 0 if compared(home, rounds) else 1
    finally:
        engine.stop()


def compared(home: str, rounds: int) -> bool:
    artifacts = open_store(Settings(home=home))
    docker = open_backend(Settings(home=home, sandbox_backend="docker"), artifacts)
    bubblewrap = open_backend(Settings(home=home), artifacts)
    try:
        return measure(docker, bubblewrap, rounds)
    finally:
        docker.close()
        bubblewrap.close()


def measure(docker: Backend, bubblewrap: Backend, rounds: int) -> bool:
    assert isinstance(docker, DockerBackend)
    opened = docker.acquire(SandboxSpec())
    session = opened.session("shell")
    sides = interleaved(rounds, {
        "bare": lambda: timed(lambda: bare(docker)), "docker": lambda: timed(lambda: life(docker)),
        "bubblewrap": lambda: timed(lambda: life(bubblewrap)), "exec": lambda: timed(lambda: opened.exec(SCRIPT)),
        "session": lambda: timed(lambda: session.run("echo $((6 * 7))"))})
    opened.close()
    p50 = {name: quantile(values, 0.5) for name, values in sides.items()}
    beside = f"p50 {p50['bare']:.0f} ms against {p50['bubblewrap']:.2f} ms"
    answers = [
        answer(LIVES, ratio(sides["bare"], sides["bubblewrap"]), "x", TARGET, beside, rounds),
        answer("life of a docker sandbox, p50", p50["docker"], "ms", None, f"bare calls: {p50['bare']:.0f} ms", rounds),
        answer("command in an open docker sandbox, p50", p50["exec"], "ms", None, None, rounds),
        answer("call of a session in a docker sandbox, p50", p50["session"], "ms", None, None, rounds)]
    return all(answers)


def bare(docker: DockerBackend) -> None:
    """What a program does that keeps a container for a command: the engine's calls and nothing else."""
    api, view = docker.engine.api, docker.view()
    binds = {source: {"bind": target, "mode": "ro"} for source, target in view.programs}
    config = api.create_host_config(
        init=True, network_mode="none", read_only=True, cap_drop=["ALL"], security_opt=["no-new-privileges"],
        mem_limit="512m", pids_limit=256, tmpfs={"/tmp": "size=256m", "/workspace": "size=256m,mode=1777"}, binds=binds)
    made = api.create_container(view.image, ["sleep", "600"], host_config=config, user="1000:1000")["Id"]
    try:
        api.start(made)
        assert api.exec_start(api.exec_create(made, SCRIPT)["Id"]) == b"42\n"
    finally:
        api.remove_container(made, v=True, force=True)


def life(backend: Backend) -> None:
    sandbox = backend.acquire(SandboxSpec())
    result = sandbox.exec(SCRIPT)
    assert result.stdout == b"42\n", result
    sandbox.close()


def timed(action: Callable[[], object]) -> float:
    """Milliseconds of one, of a few in a row."""
    started = time.perf_counter()
    for _ in range(BATCH):
        action()
    return (time.perf_counter() - started) * 1000 / BATCH


if __name__ == "__main__":
    sys.exit(main())
