"""HF weights and Megatron's state are the same model, and a weights directory is whole or absent."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from schemas.errors import TrainingError
from tests.training.conftest import make_base
from training.batch_file import Tokens
from training.model import build_model, read_architecture
from training.publish import copy_weights, weights_digest
from training.rows import collate
from training.weights import export_weights, load_weights


def megatron_of(base: Path) -> torch.nn.Module:
    architecture = read_architecture(base)
    model = build_model(architecture)
    load_weights(model, base, architecture)
    return model


def tokens_at(row: int, position: int, ids: torch.Tensor) -> Tokens:
    flags = torch.ones(len(ids), dtype=torch.bool).numpy()
    zeros = torch.zeros(len(ids)).numpy()
    return Tokens(row, position, 0, ids.numpy(), flags, zeros, zeros, 0.0)


@pytest.mark.parametrize("changes", [
    {}, {"tie_word_embeddings": False}, {"num_key_value_heads": 4}, {"num_key_value_heads": 1, "head_dim": 16}])
def test_megatron_answers_like_transformers(device: torch.device, tmp_path: Path, changes: dict):
    from transformers import LlamaForCausalLM

    base = make_base(tmp_path, initializer_range=0.3, **changes)
    ids = torch.randint(0, 40, (2, 20), generator=torch.Generator().manual_seed(1))
    rows = [[tokens_at(index, 0, line)] for index, line in enumerate(ids)]
    batch = collate(rows, 0, device)
    with torch.no_grad():
        ours = megatron_of(base)(batch.ids, batch.positions, batch.mask)
        theirs = LlamaForCausalLM.from_pretrained(base)(ids).logits
    assert theirs.abs().max() > 0.5
    assert (ours - theirs).abs().max() < 1e-5


def test_a_packed_sequence_does_not_see_its_neighbours(device: torch.device, base: Path):
    model = megatron_of(base)
    ids = torch.randint(0, 40, (30,), generator=torch.Generator().manual_seed(2))
    packed = collate([[tokens_at(0, 0, ids[:18]), tokens_at(0, 18, ids[18:])]], 0, device)
    alone = collate([[tokens_at(0, 0, ids[18:])]], 0, device)
    with torch.no_grad():
        beside = model(packed.ids, packed.positions, packed.mask)[0, 18:]
        single = model(alone.ids, alone.positions, alone.mask)[0]
    assert (beside - single).abs().max() < 1e-5


@pytest.mark.parametrize("tied", [True, False])
def test_export_is_bit_identical_and_complete(device: torch.device, tmp_path: Path, tied: bool):
    base = make_base(tmp_path, tie_word_embeddings=tied)
    digest = export_weights(megatron_of(base), read_architecture(base), base, tmp_path / "out" / "1")
    before, after = load_file(base / "model.safetensors"), load_file(tmp_path / "out" / "1" / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert sorted(path.name for path in (tmp_path / "out").rglob("*") if path.is_file()) == [
        "config.json", "model.safetensors", "tokenizer.json"]
    assert digest == weights_digest(tmp_path / "out" / "1")


def test_writing_the_same_version_again_changes_nothing_and_another_is_refused(tmp_path: Path, base: Path):
    first = copy_weights(base, tmp_path / "0")
    assert copy_weights(base, tmp_path / "0") == first
    with pytest.raises(TrainingError, match="other weights stand where version 0 belongs"):
        copy_weights(make_base(tmp_path / "other", seed=8), tmp_path / "0")
    assert weights_digest(tmp_path / "0") == first
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")] == []


def test_the_digest_covers_names_and_bytes(tmp_path: Path, base: Path):
    digest = copy_weights(base, tmp_path / "0")
    tokenizer = tmp_path / "0" / "tokenizer.json"
    tokenizer.write_text("{ }", encoding="utf-8")
    assert weights_digest(tmp_path / "0") != digest
    tokenizer.write_text("{}", encoding="utf-8")
    assert weights_digest(tmp_path / "0") == digest
    tokenizer.rename(tmp_path / "0" / "tokens.json")
    assert weights_digest(tmp_path / "0") != digest


def test_a_missing_or_surplus_tensor_is_named(device: torch.device, tmp_path: Path, base: Path):
    weights = load_file(base / "model.safetensors")
    broken = tmp_path / "broken"
    shutil.copytree(base, broken)
    kept = {name: tensor for name, tensor in weights.items() if "layers.1.mlp.up" not in name}
    save_file(kept, broken / "model.safetensors")
    with pytest.raises(TrainingError, match=r"missing.*layers\.1\.mlp\.up_proj"):
        megatron_of(broken)
    save_file(weights | {"model.extra": torch.ones(1)}, broken / "model.safetensors")
    with pytest.raises(TrainingError, match=r"no place for.*model\.extra"):
        megatron_of(broken)


@pytest.mark.parametrize(("key", "value"), [
    ("model_type", "gpt2"), ("hidden_act", "gelu"), ("attention_bias", True),
    ("rope_parameters", {"rope_type": "linear", "factor": 2.0})])
def test_an_architecture_that_is_not_trained_is_refused_by_name(base: Path, key: str, value: object):
    config = json.loads((base / "config.json").read_bytes())
    (base / "config.json").write_text(json.dumps(config | {key: value}), encoding="utf-8")
    with pytest.raises(TrainingError, match=r"only|rotary"):
        read_architecture(base)


def test_the_same_seed_gives_the_same_base(tmp_path: Path):
    first, second, other = (make_base(tmp_path / name, seed) for name, seed in (("a", 1), ("b", 1), ("c", 2)))
    assert weights_digest(first) == weights_digest(second) != weights_digest(other)
