"""What the Dagster pages show of a batch and of a run: queries and numbers, as Dagster metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

import dagster as dg
import msgspec

from pipelines.picture import bars_png, histogram, markdown_image
from schemas.events import BatchSealed
from training.manifest import Manifest

if TYPE_CHECKING:
    from lake.lake import Lake

SEALED = "sealed"
_LATEST_STEPS = 100
_HELD_OUT = """
select e.version_max as version, count(*) as episodes, avg(s.reward) as reward,
  stddev_samp(s.reward) / sqrt(count(*)) as standard_error
from requests r join episodes e using (episode_id) join current_scores s using (episode_id)
where r.run_id = $run and r.purpose = 'eval' and s.status = 'ok' and e.version_max is not null group by 1 order by 1
"""
_STEPS = """
select step, loss, grad_norm, kl, entropy, clip_fraction, tokens, wait_s, duration_s from steps
where run_id = $run order by step desc limit $limit
"""
_DISPOSITIONS = """
select disposition, count(*) as episodes from dispositions where run_id = $run group by 1 order by 1
"""


def batch_metadata(sealed: BatchSealed, manifest: Manifest) -> dict[str, Any]:
    rewards = list({row.episode_id: row.reward for row in manifest.rows if row.reward is not None}.values())
    shape = histogram(rewards)
    decided: dict[tuple[str, str], int] = {}
    for decision in manifest.dispositions:
        key = decision.disposition, decision.reason
        decided[key] = decided.get(key, 0) + 1
    return {
        "step": sealed.step, "batch_id": sealed.batch_id, "episodes": sealed.episodes, "sequences": sealed.sequences,
        "tokens": sealed.tokens, "trained_tokens": sum(row.trained_tokens for row in manifest.rows),
        "dagster/row_count": sealed.sequences, **_spread(rewards),
        "rewards": dg.MetadataValue.md(markdown_image(bars_png(shape), "rewards of the batch, 0 to 1")
                                       + f"\n\nepisodes by reward, 0 to 1: {shape}"),
        "dispositions": _table([{"disposition": name, "reason": reason, "episodes": n}
                                for (name, reason), n in sorted(decided.items())]),
        SEALED: dg.MetadataValue.json(msgspec.to_builtins(sealed)),
    }


def _spread(rewards: list[float]) -> dict[str, float]:
    return {"reward_mean": fmean(rewards), "reward_std": pstdev(rewards)} if rewards else {}


def sealed_of(metadata: Mapping[str, Any]) -> BatchSealed:
    """The event that a materialization carries."""
    return msgspec.convert(metadata[SEALED].value, BatchSealed)


def report_metadata(run_id: str, lake: Lake) -> dict[str, Any]:
    """How the run stands: held-out reward by version, its steps, its accounts."""
    snapshot = lake.snapshot()
    held_out = lake.sql(_HELD_OUT, snapshot, {"run": run_id}).to_pylist()
    steps = lake.sql(_STEPS, snapshot, {"run": run_id, "limit": _LATEST_STEPS}).to_pylist()
    accounts = lake.sql(_DISPOSITIONS, snapshot, {"run": run_id}).to_pylist()
    metadata: dict[str, Any] = {"steps": len(steps), "episodes": sum(row["episodes"] for row in accounts)}
    for name, rows in (("held_out_reward", held_out), ("step_metrics", steps), ("dispositions", accounts)):
        if rows:
            metadata[name] = _table(rows)
    if held_out:
        rewards = [row["reward"] for row in held_out]
        metadata |= {"held_out_first": rewards[0], "held_out_last": rewards[-1], "held_out": dg.MetadataValue.md(
            markdown_image(bars_png(rewards), "held-out reward by version"))}
    return metadata


def _table(rows: Iterable[Mapping[str, Any]]) -> dg.TableMetadataValue:
    """Null stays apart from zero: an empty cell."""
    shown = [{name: "" if value is None else value for name, value in row.items()} for row in rows]
    columns = [dg.TableColumn(name, "string" if isinstance(value, str) else "number")
               for name, value in (shown[0] if shown else {}).items()]
    return dg.MetadataValue.table([dg.TableRecord(row) for row in shown], dg.TableSchema(columns))
