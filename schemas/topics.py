"""Topics, which event lives where, and the partitioner. `requests` and `trajectories` are co-partitioned."""

from __future__ import annotations

import zlib

TASKS, REQUESTS, TRAJECTORIES = "tasks", "requests", "trajectories"
SCORES, TRAINING, DEAD_LETTERS = "scores", "training", "dead-letters"
TOPICS = (TASKS, REQUESTS, TRAJECTORIES, SCORES, TRAINING, DEAD_LETTERS)
SINGLE_PARTITION = frozenset({TASKS, TRAINING, DEAD_LETTERS})
DEFAULT_PARTITIONS = 4


def partitions_of(topic: str, partitions: int = DEFAULT_PARTITIONS) -> int:
    return 1 if topic in SINGLE_PARTITION else partitions


def partition_for(subject: str, partitions: int) -> int:
    """The same partition for the same subject on every backend and in every topic of equal partition count."""
    return zlib.crc32(subject.encode()) % partitions
