"""One step on Megatron is the step of the recipe, however the rows are laid out."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from schemas.errors import TrainingError
from tests.training.conftest import make_base
from training.batch_file import Tokens
from training.checkpoint import Checkpoints, Cursor
from training.spec import BatchSpec, Optimization
from training.trainer import Trainer
from training.weights import from_megatron

SPEC = BatchSpec(minibatches=2, sequence_length=64, rows_per_microbatch=4, total_steps=4, optimization=Optimization(
    learning_rate=1e-2, warmup_steps=0, decay_to=1.0, weight_decay=0.1, epsilon=1e-3, gradient_clip=0.5))


def sequences(count: int = 8, a_row: int = 1, seed: int = 3) -> list[Tokens]:
    chance = np.random.default_rng(seed)
    made = []
    ends: dict[int, int] = {}
    for index in range(count):
        length = int(chance.integers(8, 16))
        row, minibatch = index // a_row, index * 2 // count
        trained = chance.random(length) < 0.6
        trained[0] = False
        made.append(Tokens(
            row, ends.get(row, 0), minibatch, chance.integers(0, 40, length).astype(np.int32), trained,
            np.where(trained, -3.7, 0).astype(np.float32), np.where(trained, 0, -1).astype(np.int32),
            float(chance.normal())))
        ends[row] = made[-1].position + length
    return made


def weights_after(base: Path, device: torch.device, given: list[Tokens], spec: BatchSpec = SPEC,
                  steps: int = 1) -> tuple[dict[str, float], list[torch.Tensor]]:
    trainer = Trainer(base, device)
    for step in range(steps):
        metrics = trainer.train(given, spec, step, 0)
    return metrics, [parameter.detach().clone() for parameter in trainer.model.parameters()]


def farthest(left: list[torch.Tensor], right: list[torch.Tensor]) -> float:
    return max(float((one - other).detach().abs().max()) for one, other in zip(left, right, strict=True))


def test_a_step_equals_the_same_step_in_plain_torch(device: torch.device, base: Path):
    """The whole way: packed rows, masks, loss, clipping, AdamW, against transformers and one sequence at a time."""
    from transformers import LlamaForCausalLM

    given = sequences(a_row=2)
    metrics, ours = weights_after(base, device, given)
    model = LlamaForCausalLM.from_pretrained(base)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
                                  lr=1e-2, betas=(0.9, 0.95), eps=1e-3)
    norms, mismatch = [], 0.0
    for minibatch in range(2):
        optimizer.zero_grad()
        chosen = [tokens for tokens in given if tokens.minibatch == minibatch]
        count = sum(int(tokens.trained.sum()) for tokens in chosen)
        for tokens in chosen:
            ids = torch.from_numpy(tokens.ids.astype(np.int64))
            logprobs = model(ids[None]).logits[0, :-1].log_softmax(-1).gather(-1, ids[1:, None])[:, 0]
            picked = torch.from_numpy(tokens.trained[1:])
            difference = (logprobs - torch.from_numpy(tokens.logprobs[1:]))[picked]
            if minibatch == 0:
                mismatch = max(mismatch, difference.abs().max().item())
            ratio = difference.exp()
            worth = torch.minimum(ratio * tokens.advantage, ratio.clamp(0.8, 1.28) * tokens.advantage)
            (-worth.sum() / count).backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)))
        optimizer.step()
    trained = Trainer(base, device)
    trained.train(given, SPEC, 0, 0)
    theirs = {name: parameter.detach() for name, parameter in model.named_parameters()}
    exported = from_megatron(dict(trained.model.named_parameters()), trained.architecture)
    assert max(float((exported[name] - theirs[name]).abs().max()) for name in exported) < 2e-6
    assert farthest(ours, list(trained.model.parameters())) == 0.0
    assert metrics["grad_norm"] == pytest.approx(max(norms), rel=1e-4)
    assert metrics["mismatch"] == pytest.approx(mismatch, abs=1e-5)
    assert metrics["tokens"] == sum(int(tokens.trained.sum()) for tokens in given)


def test_packing_and_microbatches_do_not_change_the_step(device: torch.device, base: Path):
    _, alone = weights_after(base, device, sequences(a_row=1))
    _, packed = weights_after(base, device, sequences(a_row=4))
    small = msgspec.structs.replace(SPEC, rows_per_microbatch=1)
    _, one_by_one = weights_after(base, device, sequences(a_row=1), small)
    assert farthest(alone, packed) < 2e-6
    assert farthest(alone, one_by_one) < 2e-6


def test_a_masked_sequence_and_an_empty_batch_change_nothing(device: torch.device, base: Path):
    given = sequences()
    masked = given[0]._replace(sequence=99, trained=np.zeros_like(given[0].trained))
    _, without = weights_after(base, device, given)
    _, beside = weights_after(base, device, [*given, masked])
    assert farthest(without, beside) == 0.0
    metrics, after = weights_after(base, device, [masked])
    assert metrics == {"tokens": 0.0, "optimizer_steps": 0.0}
    assert farthest(after, list(Trainer(base, device).model.parameters())) == 0.0


def test_tokens_of_an_older_version_are_trained_but_not_compared(device: torch.device, base: Path):
    older = [tokens._replace(versions=tokens.versions - 1) for tokens in sequences()]
    metrics, _ = weights_after(base, device, older)
    assert metrics["tokens"] > 0 and "mismatch" not in metrics


def test_a_loss_that_is_not_finite_stops_the_step(device: torch.device, base: Path):
    given = sequences()
    given[0] = given[0]._replace(advantage=float("nan"))
    with pytest.raises(TrainingError, match="loss is not finite"):
        weights_after(base, device, given)


def test_a_checkpoint_goes_on_bit_for_bit(device: torch.device, base: Path, tmp_path: Path):
    _, straight = weights_after(base, device, sequences(), steps=3)
    first, checkpoints = Trainer(base, device), Checkpoints(tmp_path / "checkpoints")
    assert checkpoints.latest() is None
    for step in range(2):
        metrics = first.train(sequences(), SPEC, step, 0)
        checkpoints.save(first, Cursor(next_step=step + 1, batch_id="b", batch_sha256="s", metrics=metrics, wait_s=0.0,
                                       duration_s=0.0))
    second, cursor = Trainer(base, device), checkpoints.latest()
    assert cursor is not None and cursor.next_step == 2 and cursor.metrics == metrics
    checkpoints.load(second, cursor)
    second.train(sequences(), SPEC, 2, 0)
    assert farthest(straight, list(second.model.parameters())) == 0.0


def test_a_damaged_checkpoint_is_refused(device: torch.device, base: Path, tmp_path: Path):
    trainer, checkpoints = Trainer(base, device), Checkpoints(tmp_path / "checkpoints")
    cursor = Cursor(next_step=1, batch_id="b", batch_sha256="s", metrics={}, wait_s=0.0, duration_s=0.0)
    trainer.train(sequences(), SPEC, 0, 0)
    directory = checkpoints.save(trainer, cursor)
    checkpoints.load(trainer, cursor)
    weights = next(directory.glob("*.distcp"))
    damaged = bytearray(weights.read_bytes())
    damaged[2000] ^= 0xFF
    weights.write_bytes(damaged)
    with pytest.raises(TrainingError, match="checkpoint is damaged"):
        checkpoints.load(trainer, cursor)


def test_supervised_steps_learn_what_they_are_shown(device: torch.device, tmp_path: Path):
    base = make_base(tmp_path)
    ids = np.arange(3, 13, dtype=np.int32)
    given = [Tokens(index, 0, 0, np.roll(ids, index), np.arange(10) > 1, np.zeros(10, np.float32),
                    np.full(10, -1, np.int32), 0.0) for index in range(10)]
    spec = BatchSpec(algorithm="sft", optimizer_steps=100, sequences_per_minibatch=4, sequence_length=16)
    metrics = Trainer(base, device).train(given, spec, 0, 0)
    assert metrics["loss_last"] < 0.6 * metrics["loss"] < 0.6 * np.log(40)
    assert metrics["optimizer_steps"] == 100 and "kl" not in metrics and "mismatch" not in metrics
