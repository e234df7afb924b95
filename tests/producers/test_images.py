"""Episodes over an image, a set-up and the host's network: what a task asks for, the event says, a verifier has."""

from __future__ import annotations

import os
from pathlib import Path

from sandboxes.sandbox import Limits
from sandboxes.wanted import spec_for
from schemas.events import EpisodeStarted, ToolReturned
from tests.producers.world import World, json_task, json_turn
from tests.sandboxes.rootfs import make_root


def started(world: World, episode_id: str) -> EpisodeStarted:
    return next(payload for payload in world.payloads(episode_id) if isinstance(payload, EpisodeStarted))


def outputs(world: World, episode_id: str) -> list[str]:
    return [payload.output for payload in world.payloads(episode_id) if isinstance(payload, ToolReturned)]


def test_the_event_says_what_the_sandbox_was(world: World, tmp_path: Path) -> None:
    root = make_root(tmp_path / "root")
    tasks = [json_task("plain", tools=["run"]),
             json_task("imaged", tools=["run"], image=str(root), network="host", files={"given": b"x"},
                       setup=["mkdir -p /opt/made; cat given > /opt/made/f; mv given kept"])]
    look = json_turn("run", command="cat /etc/os-release /opt/made/f; ls; ls -l /proc/self/ns/net")
    script = world.script({task.task_id: [look, json_turn("done")] for task in tasks})
    plain, imaged = world.request(tasks, script)
    world.produce()
    assert started(world, plain.episode_id).sandbox.image == "host"
    assert started(world, plain.episode_id).sandbox.network == "none"
    said = started(world, imaged.episode_id).sandbox
    assert said.image == world.backend.identify(str(root)) and said.image.startswith("sha256:")
    assert said.network == "host"
    seen = outputs(world, imaged.episode_id)[0]
    host = os.readlink("/proc/self/ns/net")
    assert "ID=small" in seen and "kept" in seen and "given" not in seen and host in seen
    alone = outputs(world, plain.episode_id)[0]
    assert "ID=small" not in alone and "net:[" in alone and host not in alone


def test_a_verifier_has_the_image_and_the_layer_but_no_network(world: World, tmp_path: Path) -> None:
    root = make_root(tmp_path / "root")
    task = json_task("task", image=str(root), network="host", files={"given": b"x"},
                     setup=["mkdir /opt/made; mv given kept"])
    spec = spec_for(task, None, limits=Limits(), owner="test", network="none")
    sandbox = world.backend.acquire(spec)
    seen = sandbox.exec(["sh", "-c", "cat /etc/os-release; ls /opt; ls; ls -l /proc/self/ns/net"]).stdout.decode()
    assert seen.startswith("ID=small\nmade\nkept\n") and os.readlink("/proc/self/ns/net") not in seen
    taken = sandbox.snapshot()
    sandbox.close()
    again = world.backend.acquire(spec_for(task, taken, limits=Limits(), owner="test"))
    assert again.snapshot() == taken
    again.close()


def test_an_image_or_a_set_up_that_fails_is_infrastructures_failure(world: World, tmp_path: Path) -> None:
    tasks = [json_task("no image", image=str(tmp_path / "absent")), json_task("no setup", setup=["exit 3"]),
             json_task("fine")]
    world.request(tasks, world.script({task.task_id: [json_turn("done")] for task in tasks}))
    kinds = {finished.failure_kind or "": finished.termination for finished in world.produce()}
    assert kinds == {"image": "infra_failure", "setup": "infra_failure", "": "completed"}
