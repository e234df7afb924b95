"""The base model, made by the product itself: scripted, partly wrong trajectories through log and lake, one sealed
supervised batch, Megatron-Core. The tokenizer is a file of the repository."""

from __future__ import annotations

from pathlib import Path

from headrace.demo.plan import Plan
from headrace.demo.screen import Screen
from headrace.demo.waiting import Waiting, start_services
from headrace.demo.watch import Watch
from headrace.rooms import Rooms
from headrace.supervisor import Supervisor
from producers.policies import TINY_BASE
from producers.request import register_tasks, request_episodes
from schemas.errors import TrainingError
from tasks.tools import training_tasks
from training.initial import initial_model
from training.spec import BatchSpec

_EPISODES, _DRAWN = 4000, 80
_POLICY = "scripted:experts"


def make_base(rooms: Rooms, plan: Plan, screen: Screen) -> Path:
    """Directory of the base model in Hugging Face form; at once if this plan made it before."""
    with Supervisor() as supervisor, Watch(rooms.log, plan.base_run_id) as watch:
        waiting = Waiting(rooms, watch, supervisor, screen)
        waiting.until("reading the log", waiting.watch_caught_up)
        if 1 not in watch.weights:
            start_services(
                rooms, supervisor, plan.base_run_id, initial_model(rooms.home / "initial", TINY_BASE, plan.seed)
            )
            ids = _request(rooms, plan)
            screen.stage(f"base model: {len(ids)} scripted trajectories, some right, some wrong")
            waiting.until_settled("scripted trajectories", ids)
            screen.line(f"base model: mean reward of the scripts {watch.reward_mean(ids) or 0:.2f}")
            waiting.until("the lake", waiting.lake_caught_up)
            _seal(rooms, plan, watch)
            waiting.until("base model: supervised training", lambda: 1 in watch.weights)
        path = Path(watch.weights[1].path)
    screen.line(f"base model: {path}")
    return path if path.is_absolute() else rooms.home / path


def _request(rooms: Rooms, plan: Plan) -> list[str]:
    ids: list[str] = []
    for draw in range(_EPISODES // _DRAWN):
        registered = register_tasks(rooms.log, rooms.artifacts, training_tasks(plan.seed, draw, _DRAWN))
        ids += [
            request.episode_id
            for request in request_episodes(
                rooms.log, registered, run_id=plan.base_run_id, policy=_POLICY, group_key=f"base-{draw}"
            )
        ]
    return ids


def _seal(rooms: Rooms, plan: Plan, watch: Watch) -> None:
    from pipelines.run import materialize_batch

    if 0 in watch.sealed:
        return
    spec = BatchSpec(algorithm="sft", seed=plan.seed)
    if materialize_batch(rooms.settings, plan.base_run_id, spec) is None:
        raise TrainingError("the supervised batch could not be sealed", where=f"run {plan.base_run_id}")
