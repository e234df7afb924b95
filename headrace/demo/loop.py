"""The demo's phases. Every phase asks the log what is already done, so running again goes on where it stopped.

requests -> producer -> verify -> sink (child processes) -> Dagster seals a batch here -> learner -> weights, and again.
"""

from __future__ import annotations

import time

from headrace.demo.families import request_families
from headrace.demo.plan import Plan
from headrace.demo.screen import Screen
from headrace.demo.waiting import Waiting
from headrace.demo.watch import Watch
from headrace.rooms import Rooms
from headrace.supervisor import Supervisor
from producers.request import register_tasks, request_episodes
from schemas.errors import TrainingError
from schemas.events import EpisodeRequested, Limits, Sampling
from tasks.tools import heldout_tasks, training_tasks
from training.spec import BatchSpec

_LIMITS = Limits(max_turns=6, token_budget=400, wall_clock_s=120.0)
_MAX_TOKENS = 20
_POLICY = "tiny"


class Loop:
    """One run from its first request to its last evaluation."""

    def __init__(self, rooms: Rooms, plan: Plan, watch: Watch, supervisor: Supervisor, screen: Screen) -> None:
        self.rooms, self.plan, self.watch, self.screen = rooms, plan, watch, screen
        self.waiting = Waiting(rooms, watch, supervisor, screen)
        self.evaluations: dict[int, list[str]] = {}
        self._shown: set[int] = set()

    def run(self) -> None:
        self.waiting.until("reading the log", self.waiting.watch_caught_up)
        families = request_families(self.rooms, self.plan)
        self.screen.stage("first episodes: scripted policies on coding, documents and scene tasks")
        self.waiting.until_settled("scripted episodes", families.ids)
        families.report(self.watch, self.screen)
        self.waiting.until("loading the learner and the base policy", lambda: 0 in self.watch.weights)
        for step in range(self.plan.steps):
            self.step(step)
        self.evaluate(self.plan.steps)
        for version, ids in self.evaluations.items():
            self.waiting.until_settled(f"held-out tasks, version {version}", ids)
        self.show_evaluations()
        self.waiting.until("the lake", self.waiting.lake_caught_up)

    def step(self, step: int) -> None:
        """Rollouts at version `step`, one sealed batch, version `step + 1`."""
        started = time.monotonic()
        done = step + 1 in self.watch.weights
        ids = [] if done else self.request_training(step)
        if step in self.plan.evaluated_versions():
            self.evaluate(step)
        if done:
            return
        self.waiting.until_settled(f"step {step + 1}: episodes", ids)
        if step not in self.watch.sealed:
            self.waiting.until(f"step {step + 1}: the lake", self.waiting.lake_caught_up)
            self.seal(step)
        self.waiting.until(f"step {step + 1}: learner", lambda: step + 1 in self.watch.weights)
        completed = self.watch.steps.get(step)
        self.screen.step(step + 1, self.plan.steps, self.watch.reward_mean(ids), completed, time.monotonic() - started)
        self.show_evaluations()

    def request_training(self, step: int) -> list[str]:
        tasks = training_tasks(self.plan.seed, step, self.plan.groups)
        registered = register_tasks(self.rooms.log, self.rooms.artifacts, tasks)
        return _ids(
            request_episodes(
                self.rooms.log,
                registered,
                run_id=self.plan.run_id,
                policy=_POLICY,
                purpose="train",
                samples=self.plan.group_size,
                limits=_LIMITS,
                group_key=f"step-{step}",
                priority=1,
                version=step,
                sampling=Sampling(temperature=1.0, max_tokens=_MAX_TOKENS, seed=self.plan.seed),
            )
        )

    def evaluate(self, version: int) -> None:
        """Request the held-out tasks at one version; they run beside the next step's training episodes."""
        registered = register_tasks(self.rooms.log, self.rooms.artifacts, heldout_tasks())
        self.evaluations[version] = _ids(
            request_episodes(
                self.rooms.log,
                registered,
                run_id=self.plan.run_id,
                policy=_POLICY,
                purpose="eval",
                limits=_LIMITS,
                group_key=f"held-out-{version}",
                version=version,
                sampling=Sampling(temperature=self.plan.eval_temperature, max_tokens=_MAX_TOKENS, seed=self.plan.seed),
            )
        )

    def show_evaluations(self) -> None:
        for version, ids in self.evaluations.items():
            if version not in self._shown and self.watch.settled(ids) == len(ids):
                self._shown.add(version)
                self.screen.held_out(version, self.watch.reward_mean(ids))

    def seal(self, step: int) -> None:
        from pipelines.run import materialize_batch

        sealed = materialize_batch(self.rooms.settings, self.plan.run_id, self.spec())
        if sealed is None or sealed.step != step:
            raise TrainingError(
                "the batch could not be sealed",
                where=f"run {self.plan.run_id}, step {step}",
                value=sealed,
                hint="`headrace status` shows what is pending",
            )

    def spec(self) -> BatchSpec:
        return BatchSpec(
            algorithm="grpo",
            groups=self.plan.groups,
            group_size=self.plan.group_size,
            max_staleness=self.rooms.settings.batch_max_staleness,
            group_timeout_s=self.rooms.settings.batch_group_timeout_s,
            total_steps=self.plan.steps,
            seed=self.plan.seed,
            shuffle_rewards=self.plan.shuffle_rewards,
        )


def _ids(requests: list[EpisodeRequested]) -> list[str]:
    return [request.episode_id for request in requests]
