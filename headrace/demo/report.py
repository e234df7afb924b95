"""The end of a demo: the curve as a picture and a table, the books, where everything lies, what to try next."""

from __future__ import annotations

import math
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.demo.plan import Plan
from headrace.rooms import Rooms

if TYPE_CHECKING:
    from lake.lake import Lake

_CURVE = """
select version_min as version, count(*) as episodes, avg(s.reward) as reward, stddev_samp(s.reward) as deviation
from episodes e join current_scores s using (episode_id)
where e.run_id = $run and e.purpose = 'eval' and e.kind = 'tools' and s.status = 'ok' and e.version_min = e.version_max
group by 1 order by 1
"""
_BOOKS = "select disposition, count(*) as episodes from dispositions where run_id = $run group by 1 order by 2 desc, 1"
_NEXT_QUERY = "select kind, count(*), avg(reward) from episodes join current_scores using (episode_id) group by 1"
_REQUESTED = "select count(*) as n from requests where run_id = $run"
_TRAINING = """
select step, avg(r.reward) as reward from batch_rows r join batches b using (batch_id)
where b.run_id = $run group by 1 order by 1
"""


class Point(NamedTuple):
    """Held-out reward of one weight version with the half-width of its 95 % interval (normal approximation)."""

    version: int
    episodes: int
    reward: float
    half_width: float


def held_out_curve(lake: Lake, run_id: str) -> list[Point]:
    rows = lake.sql(_CURVE, parameters={"run": run_id}).to_pylist()
    return [
        Point(
            row["version"],
            row["episodes"],
            row["reward"],
            1.96 * (row["deviation"] or 0.0) / math.sqrt(row["episodes"]),
        )
        for row in rows
    ]


def print_report(rooms: Rooms, plan: Plan) -> int:
    """Print it all; 0 if the books close, else 1."""
    curve = held_out_curve(rooms.lake, plan.run_id)
    print(f"\nheld-out reward, {curve[0].episodes if curve else 0} fixed tasks, T = {plan.eval_temperature}")
    for point in curve:
        bar = "█" * round(40 * point.reward)
        print(f"  version {point.version:>3}  {point.reward:.3f} ± {point.half_width:.3f}  {bar}")
    if curve:
        print(f"held-out reward first: {curve[0].reward:.3f}\nheld-out reward last: {curve[-1].reward:.3f}")
    picture = rooms.home / "reports" / f"{plan.run_id}.png"
    draw_curve(curve, rooms.lake.sql(_TRAINING, parameters={"run": plan.run_id}).to_pylist(), picture)
    closed = _print_books(rooms.lake, plan.run_id)
    _print_places(rooms, picture)
    _print_next(rooms, plan)
    return 0 if closed else 1


def _print_books(lake: Lake, run_id: str) -> bool:
    books = {row["disposition"]: row["episodes"] for row in lake.sql(_BOOKS, parameters={"run": run_id}).to_pylist()}
    requested = lake.sql(_REQUESTED, parameters={"run": run_id}).to_pylist()[0]["n"]
    print("\nepisodes by disposition")
    for name, count in books.items():
        print(f"  {name:<14} {count:>6}")
    total = sum(books.values())
    print(f"  {'sum':<14} {total:>6}  of {requested} requested")
    if total != requested:
        print('the books do not close: `headrace sql "select * from dispositions"` shows what each episode became')
    if books.get("pending"):
        print(f"{books['pending']} episodes are pending: unfinished, unscored or waiting for a batch")
    return total == requested and not books.get("pending")


def _print_places(rooms: Rooms, picture: Path) -> None:
    print("\nwhere everything lies")
    places = {
        "picture": picture,
        "log": rooms.settings.log if rooms.settings.log != "sqlite" else rooms.home / "log.db",
        "lake": rooms.home / "lake",
        "artifacts": rooms.home / "artifacts",
        "weights": rooms.home / "weights",
        "Dagster instance": rooms.home / "dagster",
        "logs of the services": rooms.home / "logs",
    }
    for name, place in places.items():
        print(f"  {name:<20} {place}")


def _print_next(rooms: Rooms, plan: Plan) -> None:
    at = "" if rooms.settings.home == ".headrace" else f" --home {rooms.settings.home}"
    on = "" if rooms.settings.log == "sqlite" else f" --log {rooms.settings.log}"
    headrace = "headrace" if shutil.which("headrace") else os.path.relpath(sys.argv[0])
    print("\ntry next")
    for command in (
        f'{headrace} sql{at} "{_NEXT_QUERY}"',
        f"{headrace} episodes ls{at} --failed --limit 5",
        f"{headrace} batches rebuild{at} --all --check",
        f"{headrace} replay score{at}{on} --all",
        "make ui" if not at else f"HEADRACE_HOME={rooms.settings.home} make ui",
    ):
        print(f"  {command}")


def draw_curve(curve: list[Point], training: list[dict[str, Any]], path: Path) -> None:
    """Held-out reward with its interval, and the mean reward of each batch, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(figsize=(7, 4), dpi=120)
    if training:
        axes.plot(
            [row["step"] for row in training],
            [row["reward"] for row in training],
            color="#9ab",
            linewidth=1,
            label="training batches, T = 1",
        )
    axes.errorbar(
        [p.version for p in curve],
        [p.reward for p in curve],
        yerr=[p.half_width for p in curve],
        marker="o",
        color="#06c",
        capsize=3,
        label="held-out tasks, 95 % interval",
    )
    axes.set(xlabel="weight version", ylabel="mean reward", ylim=(0, 1), title="Reward by weight version")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
