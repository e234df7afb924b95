"""The learner as a process: log in, weights and events out, exactly once whatever kills it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
import torch

from tests.training.conftest import make_base
from tests.training.world import RUN, World
from training.batch import seal
from training.inbox import Inbox
from training.launch import learner_command
from training.learner import Learner, Publisher, main, publish_base
from training.publish import weights_digest
from training.spec import BatchSpec

STEPS = 3
SPEC = BatchSpec(groups=3, group_size=3, sequence_length=8, rows_per_microbatch=2, total_steps=STEPS)
KILLS = ("learner:after_train", "learner:before_pointer", "learner:after_checkpoint", "learner:after_export",
         "learner:between_events", "learner:after_step", "learner:after_checkpoint")
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the batches of three steps, and a base beside it."""
    folder = tmp_path_factory.mktemp("sealed")
    world = World(folder / "home")
    for step in range(STEPS):
        for name in "abc":
            world.group(f"{name}{step}", [1.0, 0.0, 0.5], version=step)
        world.sink()
        assert seal(RUN, SPEC, lake=world.lake, artifacts=world.artifacts, log=world.log) is not None
        world.sink()
    world.close()
    make_base(folder)
    return folder


@pytest.fixture(scope="module")
def undisturbed(sealed: Path, tmp_path_factory: pytest.TempPathFactory, device: torch.device) -> Iterator[World]:
    """The same home after a learner that nobody disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    shutil.copytree(sealed, folder, dirs_exist_ok=True)
    world = World(folder / "home")
    publisher = Publisher(world.settings, RUN)
    Learner(world.settings, RUN, folder / "base", publisher, device).run(STEPS)
    publisher.close()
    yield world
    world.close()


def told(world: World) -> Inbox:
    inbox = Inbox(world.log, RUN)
    inbox.close()
    return inbox


def arguments(folder: Path, steps: int = STEPS) -> list[str]:
    return ["--home", str(folder / "home"), "--run", RUN, "--base", str(folder / "base"), "--steps", str(steps)]


def test_each_step_leaves_a_checkpoint_weights_and_two_events(undisturbed: World):
    inbox, home = told(undisturbed), Path(undisturbed.settings.home)
    assert sorted(inbox.steps) == [0, 1, 2] and sorted(inbox.weights) == [1, 2, 3]
    for step, completed in inbox.steps.items():
        assert completed.batch_id == inbox.batches[step].batch_id
        assert {"loss", "grad_norm", "kl", "entropy", "clip_fraction", "tokens", "mismatch"} <= set(completed.metrics)
        published = inbox.weights[step + 1]
        assert published.step == step and weights_digest(home / published.path) == published.digest
    assert len({published.digest for published in inbox.weights.values()}) == 3
    kept = sorted(path.name for path in (home / "checkpoints" / RUN).iterdir())
    assert kept == ["latest", "step-000002", "step-000003"]
    assert inbox.steps[2].checkpoint == f"checkpoints/{RUN}/step-000003"


def test_killed_anywhere_and_started_again_it_ends_as_if_nothing_had_happened(
        sealed: Path, undisturbed: World, tmp_path: Path):
    shutil.copytree(sealed, tmp_path, dirs_exist_ok=True)
    script = Path(__file__).with_name("killed.py")
    run = subprocess.run([sys.executable, str(script), *KILLS, "", "--", *arguments(tmp_path)], capture_output=True,
                         text=True, timeout=PATIENCE_S, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert run.stdout.split() == ["-9"] * len(KILLS) + ["0"], run.stderr
    world = World(tmp_path / "home")
    ours, theirs = told(world), told(undisturbed)
    assert {step: done.metrics for step, done in ours.steps.items()} == {
        step: done.metrics for step, done in theirs.steps.items()}
    assert {version: out.digest for version, out in ours.weights.items() if version} == {
        version: out.digest for version, out in theirs.weights.items()}
    assert world.log.ends(["training"])["training", 0] == STEPS + STEPS + STEPS + 1  # sealed, completed, published
    assert list((tmp_path / "home").rglob("*.part")) == []
    world.close()


def test_two_processes_train_as_one_and_die_with_their_launcher(sealed: Path, undisturbed: World, tmp_path: Path):
    shutil.copytree(sealed, tmp_path, dirs_exist_ok=True)
    world = World(tmp_path / "home")
    settings = msgspec.structs.replace(world.settings, learner_processes=2)
    command = learner_command(settings, RUN, tmp_path / "base")
    with subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}) as agent:
        inbox, deadline = Inbox(world.log, RUN), time.monotonic() + PATIENCE_S
        while STEPS not in inbox.weights:
            assert agent.poll() is None and time.monotonic() < deadline
            inbox._read(0.2)
        workers = psutil.Process(agent.pid).children(recursive=True)
        os.kill(agent.pid, signal.SIGKILL)
        gone, alive = psutil.wait_procs(workers, timeout=30.0)
        for orphan in alive:
            orphan.kill()
    assert len(gone) == 2 and alive == []
    theirs = told(undisturbed)
    for step, completed in inbox.steps.items():
        assert completed.metrics == pytest.approx(theirs.steps[step].metrics, rel=1e-4, abs=1e-6)
    inbox.close()
    world.close()


def test_a_base_that_is_none_is_one_paragraph(sealed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    shutil.copytree(sealed, tmp_path, dirs_exist_ok=True)
    (tmp_path / "base" / "model.safetensors").unlink()
    assert main(arguments(tmp_path)) == 1
    assert "error[training]: weights of the base cannot be read" in capsys.readouterr().err


def test_a_run_is_never_trained_from_another_base_than_it_began_with(
        sealed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    shutil.copytree(sealed, tmp_path, dirs_exist_ok=True)
    world = World(tmp_path / "home")
    publisher = Publisher(world.settings, RUN)
    publish_base(publisher, tmp_path / "base", tmp_path / "home", RUN)
    publisher.close()
    world.close()
    (tmp_path / "base" / "model.safetensors").write_bytes(b"other weights")
    assert main(arguments(tmp_path, steps=0)) == 1
    assert "error[training]: the run began from another base" in capsys.readouterr().err
