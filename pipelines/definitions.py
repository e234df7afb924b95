"""All that Dagster loads: `dagster dev -m pipelines.definitions`. The home is the one that the settings name."""

from __future__ import annotations

import dagster as dg

from pipelines.asset_checks import lake_checks
from pipelines.assets import run_report, training_batch, trajectory_lake
from pipelines.jobs import report_run, seal_batch
from pipelines.logs import file_logger
from pipelines.resources import HeadraceResource
from pipelines.sensors import batches_due


def definitions(headrace: HeadraceResource) -> dg.Definitions:
    return dg.Definitions(
        assets=[trajectory_lake, training_batch, run_report], asset_checks=[lake_checks], jobs=[seal_batch, report_run],
        sensors=[batches_due], resources={"headrace": headrace},
        loggers={"console": dg.colored_console_logger, "file": file_logger})


defs = definitions(HeadraceResource())
