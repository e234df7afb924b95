"""Jobs: seal the next batch of a run behind its checks; report on a run."""

from __future__ import annotations

import dagster as dg

from pipelines.asset_checks import BATCH, LAKE
from pipelines.partitions import training_runs

seal_batch = dg.define_asset_job(
    "seal_batch", partitions_def=training_runs, description="Checks of the lake, then the run's next batch.",
    selection=dg.AssetSelection.checks_for_assets(LAKE) | dg.AssetSelection.assets(BATCH))
report_run = dg.define_asset_job(
    "report_run", partitions_def=training_runs, selection=dg.AssetSelection.assets("run_report"),
    description="Held-out reward, steps and accounts of a run.")
