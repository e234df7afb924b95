"""Megatron alone in the test's process, and a model small enough to train in a test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from training.initial import initial_model

if TYPE_CHECKING:
    import torch

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 40, "hidden_size": 32,
    "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "hidden_act": "silu", "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "attention_bias": False,
    "mlp_bias": False, "tie_word_embeddings": True, "initializer_range": 0.08, "dtype": "float32",
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}


def make_base(folder: Path, seed: int = 7, **changes: object) -> Path:
    """A random base of a few thousand parameters."""
    source = folder / "configuration"
    source.mkdir(parents=True)
    (source / "config.json").write_text(json.dumps(CONFIG | changes), encoding="utf-8")
    (source / "tokenizer.json").write_text("{}", encoding="utf-8")
    return initial_model(folder / "base", source, seed)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return make_base(tmp_path)


@pytest.fixture(scope="module")
def device() -> Iterator[torch.device]:
    """Megatron's groups of one process; calls that name CUDA are mapped."""
    import torch

    from training.cpu import cuda_on_cpu
    from training.megatron import process_groups

    torch.set_num_threads(1)
    with cuda_on_cpu() as device, process_groups():
        yield device
