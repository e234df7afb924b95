"""Coding, documents and scene episodes by scripted policies, some right and some wrong: evaluation only."""

from __future__ import annotations

from typing import NamedTuple

from headrace.demo.plan import Plan
from headrace.demo.screen import Screen
from headrace.demo.watch import Watch
from headrace.rooms import Rooms
from producers.request import register_tasks, request_episodes
from schemas.events import EpisodeRequested
from tasks.sets import builtin_sets

FAMILIES = ("coding", "documents", "scene")
POLICIES = ("scripted:reference", "scripted:variant:wrong", "scripted:variant:partial", "scripted:empty")


class Families(NamedTuple):
    requests: list[EpisodeRequested]

    @property
    def ids(self) -> list[str]:
        return [request.episode_id for request in self.requests]

    def report(self, watch: Watch, screen: Screen) -> None:
        for kind in FAMILIES:
            ids = [request.episode_id for request in self.requests if request.kind == kind]
            solved = sum(watch.rewards.get(episode) == 1.0 for episode in ids)
            screen.line(
                f"{kind}: {len(ids)} episodes scored, {solved} solved, mean reward {watch.reward_mean(ids) or 0:.2f}"
            )


def request_families(rooms: Rooms, plan: Plan) -> Families:
    requests: list[EpisodeRequested] = []
    for kind in FAMILIES:
        registered = register_tasks(rooms.log, rooms.artifacts, builtin_sets()[kind]())
        for policy in POLICIES:
            requests += request_episodes(
                rooms.log, registered, run_id=plan.run_id, policy=policy, purpose="eval", group_key=policy, priority=2
            )
    return Families(requests)
