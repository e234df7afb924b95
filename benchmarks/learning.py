"""Does the reward climb because of training? Seeds of the demo, and a control of equal length whose rewards are
dealt out at random. Slow: each run is a whole demo. `python benchmarks/learning.py [--seeds 0,1,2] [--steps N]`"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from headrace.demo.plan import open_plan
from headrace.demo.report import Point, held_out_curve
from headrace.demo.screen import Screen
from headrace.demo.session import run_loop
from headrace.rooms import Rooms
from schemas.settings import resolve

MUST_REACH = 0.7


def learn(home: Path, seed: int, steps: int, shuffle_rewards: bool) -> tuple[list[Point], float]:
    """Held-out curve of one run and its wall time in seconds."""
    started = time.monotonic()
    with Rooms(resolve({"home": str(home)}).settings) as rooms:
        rooms.make_home()
        plan = open_plan(
            rooms.home, seed=seed, steps=steps, from_scratch=False, fresh=False, shuffle_rewards=shuffle_rewards
        )
        run_loop(rooms, plan, Screen(steps, sys.stderr))
        return held_out_curve(rooms.lake, plan.run_id), time.monotonic() - started


def verdict(question: str, curve: list[Point], holds: bool, target: str, duration_s: float) -> dict:
    return {
        "question": question,
        "value": round(curve[-1].reward, 4),
        "unit": "mean held-out reward",
        "target": target,
        "holds": holds,
        "against": f"first {curve[0].reward:.4f}",
        "rounds": 1,
        "interval": round(curve[-1].half_width, 4),
        "curve": [[point.version, round(point.reward, 4)] for point in curve],
        "duration_s": round(duration_s, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--home", type=Path, default=Path(".headrace-learning"))
    parser.add_argument("--quick", action="store_true", help="one seed, no control")
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")][: 1 if options.quick else None]
    lines = []
    for seed in seeds:
        curve, duration_s = learn(options.home / f"seed-{seed}", seed, options.steps, False)
        lines.append(
            verdict(f"seed {seed}: last held-out reward", curve, curve[-1].reward >= MUST_REACH, ">= 0.7", duration_s)
        )
    if not options.quick:
        curve, duration_s = learn(options.home / "control", seeds[0], options.steps, True)
        chance = curve[0].reward + curve[0].half_width + curve[-1].half_width
        target = f"<= {chance:.4f}: the first value and both intervals"
        lines.append(verdict("control, shuffled rewards", curve, curve[-1].reward <= chance, target, duration_s))
    for line in lines:
        print(json.dumps(line))
    return 0 if all(line["holds"] for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
