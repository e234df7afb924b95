"""The learner's view of the training topic."""

from __future__ import annotations

from pathlib import Path

from schemas.envelope import Event, wire_type
from schemas.events import StepCompleted
from tests.training.world import RUN, World
from training.inbox import Inbox


def test_the_first_of_a_step_counts_and_a_bad_event_stops_nobody(tmp_path: Path):
    world = World(tmp_path)
    world.append(StepCompleted(run_id=RUN, step=0, batch_id="first"), RUN)
    bad = Event("bad", "s", wire_type("batch.sealed"), RUN, 0, 1, b"\x81\xa4step\xc0")
    world.log.append("training", [bad]).result()
    world.append(StepCompleted(run_id=RUN, step=0, batch_id="second"), RUN)
    world.append(StepCompleted(run_id="other", step=1, batch_id="third"), "other")
    inbox = Inbox(world.log, RUN)
    inbox.close()
    assert {step: completed.batch_id for step, completed in inbox.steps.items()} == {0: "first"}
    assert inbox.batches == {}
    world.close()
