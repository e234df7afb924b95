"""One optimisation step on Megatron: its model, its data parallelism, its optimizer, its schedule.

Gradients are of the sum of token losses over all ranks, divided by the number of trained tokens over all ranks; so
the result does not depend on how rows are split into microbatches or ranks, but for rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from schemas.errors import TrainingError
from training import algorithms
from training.batch_file import Tokens
from training.megatron import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    MegatronOptimizer,
    OptimizerConfig,
    finalize_model_grads,
    get_forward_backward_func,
    get_megatron_optimizer,
    parallel_state,
)
from training.model import build_model, read_architecture
from training.rows import Microbatch, Row, collate, rows_of
from training.schedule import learning_rate, supervised_plan
from training.spec import BatchSpec
from training.weights import export_weights, load_weights

Loss = Callable[[BatchSpec, Microbatch, Tensor], tuple[Tensor, Tensor, Tensor]]
"""Loss summed over tokens, number of tokens, and the report: _SUMS over tokens, then the largest mismatch."""
_SUMS = ("loss", "kl", "entropy", "clip_fraction")
_NO_MISMATCH = -1.0
"""Where no token was sampled by the version that is trained, there is nothing to compare."""


class Trainer:
    """The model with its optimizer on this rank. All ranks call the same methods with the same batches."""

    def __init__(self, base: Path, device: torch.device) -> None:
        self.base, self.device = base, device
        self.architecture = read_architecture(base)
        self.model = build_model(self.architecture).to(device)
        load_weights(self.model, base, self.architecture)
        config = self.model.config
        self.replica = DistributedDataParallel(
            config, DistributedDataParallelConfig(overlap_grad_reduce=False, use_distributed_optimizer=False),
            self.model)
        config.finalize_model_grads_func = finalize_model_grads
        self.optimizer: MegatronOptimizer = get_megatron_optimizer(
            OptimizerConfig(optimizer="adam", lr=0.0, params_dtype=torch.float32, use_distributed_optimizer=False),
            [self.replica])

    def train(self, sequences: Sequence[Tokens], spec: BatchSpec, step: int, version: int) -> dict[str, float]:
        """All optimizer steps of one batch; its metrics. Raises TrainingError if loss or gradient is not finite."""
        plan = _minibatches(sequences, spec, step)
        reports = []
        for index, (rate, rows) in enumerate(plan):
            if rows:
                reports.append(self._optimize(rows, spec, rate, version))
                _check_finite(reports[-1], step, index)
        return _summary(reports, spec)

    def export(self, directory: Path) -> str:
        """The weights as an HF directory; its digest."""
        return export_weights(self.model, self.architecture, self.base, directory)

    def _optimize(self, rows: list[Row], spec: BatchSpec, rate: float, version: int) -> dict[str, float]:
        self._set_hyperparameters(spec, rate)
        self.replica.zero_grad_buffer()
        self.optimizer.zero_grad()
        microbatches = self._mine(rows, spec, version)
        reports = get_forward_backward_func()(
            forward_step_func=partial(_forward, _LOSSES[spec.algorithm], spec), data_iterator=iter(microbatches),
            model=[self.replica], num_microbatches=len(microbatches), seq_length=spec.sequence_length,
            micro_batch_size=spec.rows_per_microbatch, forward_only=False)
        _, grad_norm, _ = self.optimizer.step()
        tokens = sum(len(batch.targets) for batch in microbatches)
        return _reduce(reports, tokens) | {"grad_norm": float(grad_norm or 0.0), "learning_rate": rate}

    def _mine(self, rows: list[Row], spec: BatchSpec, version: int) -> list[Microbatch]:
        """This rank's rows in microbatches: as many on every rank, if need be an empty one."""
        rank, ranks = parallel_state.get_data_parallel_rank(), parallel_state.get_data_parallel_world_size()
        size = spec.rows_per_microbatch
        count = math.ceil(math.ceil(len(rows) / ranks) / size)
        mine = rows[rank::ranks]
        return [collate(mine[index * size:(index + 1) * size], version, self.device) for index in range(count)]

    def _set_hyperparameters(self, spec: BatchSpec, rate: float) -> None:
        recipe = spec.optimization
        for optimizer in getattr(self.optimizer, "chained_optimizers", [self.optimizer]):
            optimizer.config.clip_grad = recipe.gradient_clip
        for group in self.optimizer.param_groups:
            group["lr"] = rate
            group["betas"] = (recipe.beta1, recipe.beta2)
            group["eps"] = recipe.epsilon
            group["weight_decay"] = recipe.weight_decay * group["wd_mult"]


def _minibatches(sequences: Sequence[Tokens], spec: BatchSpec, step: int) -> Iterator[tuple[float, list[Row]]]:
    """Learning rate and rows of each optimizer step of a batch."""
    if spec.algorithm == "sft":
        kept = rows_of(sequences)
        for index, chosen in enumerate(supervised_plan([len(row[0].ids) for row in kept], spec)):
            yield learning_rate(spec, index), [kept[place] for place in chosen]
        return
    for minibatch in range(spec.minibatches):
        yield learning_rate(spec, step), rows_of(
            tokens for tokens in sequences if tokens.minibatch == minibatch)


def _forward(loss: Loss, spec: BatchSpec, batches: Iterator[Microbatch], model: Any) -> tuple[Tensor, Any]:
    batch = next(batches)
    logits = model(batch.ids, batch.positions, batch.mask)
    picked = logits.reshape(-1, logits.shape[-1]).index_select(0, batch.where)
    return algorithms.log_probabilities(picked, spec.temperature), partial(loss, spec, batch)


def _grpo(spec: BatchSpec, batch: Microbatch, distribution: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    logprobs = algorithms.token_logprobs(distribution, batch.targets)
    told = logprobs, batch.behaviour, batch.advantages, spec.clip_low, spec.clip_high
    loss = algorithms.clipped_loss(*told).sum()
    with torch.no_grad():
        away = (logprobs - batch.behaviour).abs()[batch.fresh]
        report = torch.stack([
            loss.detach(), algorithms.kl_k3(logprobs, batch.behaviour).sum(), algorithms.entropy(distribution).sum(),
            algorithms.clipped(*told).float().sum(), away.max() if len(away) else loss.new_tensor(_NO_MISMATCH)])
    return loss, _count(batch), report


def _sft(spec: BatchSpec, batch: Microbatch, distribution: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    loss = algorithms.cross_entropy(algorithms.token_logprobs(distribution, batch.targets)).sum()
    with torch.no_grad():
        zero = torch.zeros_like(loss)
        report = torch.stack([
            loss.detach(), zero, algorithms.entropy(distribution).sum(), zero, loss.new_tensor(_NO_MISMATCH)])
    return loss, _count(batch), report


_LOSSES: dict[str, Loss] = {"grpo": _grpo, "sft": _sft}


def _count(batch: Microbatch) -> Tensor:
    return torch.tensor(len(batch.targets), dtype=torch.int, device=batch.targets.device)


def _reduce(reports: list[Tensor], tokens: int) -> dict[str, float]:
    """Sums and the largest mismatch over microbatches and ranks."""
    table = torch.stack(reports).double()
    sums = torch.cat([table[:, :-1].sum(dim=0), table.new_tensor([tokens])])
    largest = table[:, -1].max()
    group = parallel_state.get_data_parallel_group()
    torch.distributed.all_reduce(sums, group=group)
    torch.distributed.all_reduce(largest, op=torch.distributed.ReduceOp.MAX, group=group)
    return dict(zip((*_SUMS, "tokens"), sums.tolist(), strict=True)) | {"mismatch": float(largest)}


def _check_finite(report: dict[str, float], step: int, index: int) -> None:
    for name in ("loss", "grad_norm"):
        if not math.isfinite(report[name]):
            raise TrainingError(f"{name} is not finite: the weights of this step are not published",
                                where=f"step {step}, optimizer step {index}", value=report[name],
                                hint="lower the learning rate, or look at the batch with `headrace batches show`")


def _summary(reports: list[dict[str, float]], spec: BatchSpec) -> dict[str, float]:
    """Metrics of a batch: means over its trained tokens, the largest gradient norm, the mismatch before any update."""
    tokens = sum(report["tokens"] for report in reports)
    metrics = {"tokens": tokens, "optimizer_steps": float(len(reports))}
    if not tokens:
        return metrics
    supervised = spec.algorithm == "sft"
    for name in ("loss", "entropy") if supervised else _SUMS:
        metrics[name] = sum(report[name] for report in reports) / tokens
    if supervised:
        metrics["loss_last"] = reports[-1]["loss"] / reports[-1]["tokens"]
    metrics["grad_norm"] = max(report["grad_norm"] for report in reports)
    metrics["learning_rate"] = reports[-1]["learning_rate"]
    if reports[0]["mismatch"] != _NO_MISMATCH:
        metrics["mismatch"] = reports[0]["mismatch"]
    return metrics
