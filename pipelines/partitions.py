"""One partition for each training run; never one for a trajectory or a step."""

from __future__ import annotations

import dagster as dg

PARTITIONS = "training_run"
training_runs = dg.DynamicPartitionsDefinition(name=PARTITIONS)
