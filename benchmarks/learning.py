"""Does the reward climb because of training? Three seeds of the demo, and a control whose rewards are dealt at random.

    python benchmarks/learning.py [--quick] [--seed S] [--steps N] [--home DIR]

Slow: each of the four runs is a whole demo. Quick is one seed and four steps, which shows that it runs, not that it
learns. Curves are told on stderr.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from harness import answer, parser

from headrace.demo.plan import open_plan
from headrace.demo.report import Point, held_out_curve
from headrace.demo.screen import Screen
from headrace.demo.session import run_loop
from headrace.rooms import Rooms
from schemas.settings import resolve

MUST_REACH = 0.7
SEEDS = 3


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


def tell(question: str, curve: list[Point], target: str | None, duration_s: float) -> bool:
    print(question, [(point.version, round(point.reward, 4)) for point in curve], file=sys.stderr)
    return answer(question, curve[-1].reward, "mean held-out reward", target,
                  f"first {curve[0].reward:.4f}, last within {curve[-1].half_width:.4f}; {duration_s:.0f} s", 1)


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--steps", type=int, help="instead of 16 (4 with --quick)")
    options.add_argument("--home", type=Path, default=Path(".headrace-learning"))
    chosen = options.parse_args()
    steps = chosen.steps or (4 if chosen.quick else 16)
    home = chosen.home / ("quick" if chosen.quick else "full")
    held = []
    for seed in range(chosen.seed, chosen.seed + (1 if chosen.quick else SEEDS)):
        curve, duration_s = learn(home / f"seed-{seed}", seed, steps, False)
        held.append(tell(f"seed {seed}: held-out reward after {steps} steps", curve,
                         None if chosen.quick else f">= {MUST_REACH}", duration_s))
    if not chosen.quick:
        curve, duration_s = learn(home / "control", chosen.seed, steps, True)
        chance = curve[0].reward + curve[0].half_width + curve[-1].half_width  # The first value and both intervals.
        held.append(tell("control: held-out reward after as many steps with shuffled rewards", curve,
                         f"<= {chance:.4f}", duration_s))
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
