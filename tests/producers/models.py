"""Random tiny models on disk, for tests of policies."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from producers.policies import TINY_BASE


def random_model(directory: Path, seed: int, tied: bool = True, std: float = 0.08) -> Path:
    """A model of the tiny policy's shape with random weights, in Hugging Face's layout."""
    directory.mkdir(parents=True)
    config = json.loads((TINY_BASE / "config.json").read_text()) | {"tie_word_embeddings": tied}
    (directory / "config.json").write_text(json.dumps(config))
    shutil.copy(TINY_BASE / "tokenizer.json", directory)
    generator = torch.Generator().manual_seed(seed)
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    shapes = {"embed_tokens": (config["vocab_size"], hidden), "norm": (hidden,)}
    for layer in range(config["num_hidden_layers"]):
        sizes = {"self_attn.q_proj": (queries, hidden), "self_attn.k_proj": (keys, hidden),
                 "self_attn.v_proj": (keys, hidden), "self_attn.o_proj": (hidden, queries),
                 "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner),
                 "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,)}
        shapes |= {f"layers.{layer}.{name}": shape for name, shape in sizes.items()}
    tensors = {f"model.{name}.weight": torch.randn(*shape, generator=generator) * std + (len(shape) == 1)
               for name, shape in shapes.items()}
    if not tied:
        tensors["lm_head.weight"] = torch.randn(config["vocab_size"], hidden, generator=generator) * std
    save_file(tensors, directory / "model.safetensors")
    return directory
