"""A producer in a process of its own, to be killed or paused: `python -m tests.producers.child HOME LOG`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.producers.world import World

if __name__ == "__main__":
    world = World(Path(sys.argv[1]), sys.argv[2])
    world.produce()
    world.close()
