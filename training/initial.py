"""A base to start from: random weights for a Llama configuration, as an HF directory. Made without torch.

The standard deviation is the configuration's `initializer_range`. The recipe has 0.08: with the usual 0.02 a model
as small as the tiny policy never learned to copy.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from schemas.errors import TrainingError
from training.publish import write_weights

_CONFIG = "config.json"


def initial_model(directory: Path, source: Path, seed: int) -> Path:
    """`directory`, made of the configuration and tokenizer in `source` and weights drawn with `seed`.

    The same seed gives the same bytes. A directory that is there already is left as it is.
    """
    from safetensors.numpy import save

    if directory.exists():
        return directory
    config = _read_config(source / _CONFIG)
    write_weights(directory, source, save(draw_weights(config, seed), {"format": "pt"}))
    return directory


def draw_weights(config: dict[str, Any], seed: int) -> dict[str, np.ndarray]:
    """Tensors by their HF names, drawn in a fixed order; norms are one."""
    chance = np.random.Generator(np.random.PCG64(seed))
    drawn = {name: (chance.standard_normal(size) * config["initializer_range"]).astype(np.float32)
             for name, size in _matrices(config).items()}
    norms = ["model.norm.weight"] + [
        f"model.layers.{index}.{name}.weight" for index in range(config["num_hidden_layers"])
        for name in ("input_layernorm", "post_attention_layernorm")]
    return drawn | {name: np.ones(config["hidden_size"], np.float32) for name in norms}


def _matrices(config: dict[str, Any]) -> dict[str, tuple[int, int]]:
    width, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    size = config.get("head_dim") or width // heads
    queries, keys = heads * size, config.get("num_key_value_heads", heads) * size
    layer = {
        "self_attn.q_proj": (queries, width), "self_attn.k_proj": (keys, width), "self_attn.v_proj": (keys, width),
        "self_attn.o_proj": (width, queries), "mlp.gate_proj": (inner, width), "mlp.up_proj": (inner, width),
        "mlp.down_proj": (width, inner)}
    matrices = {"model.embed_tokens.weight": (config["vocab_size"], width)} | {
        f"model.layers.{index}.{name}.weight": shape
        for index in range(config["num_hidden_layers"]) for name, shape in layer.items()}
    if not config.get("tie_word_embeddings"):
        matrices["lm_head.weight"] = (config["vocab_size"], width)
    return matrices


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as wrong:
        raise TrainingError(f"model configuration cannot be read ({wrong})", where=str(path)) from None
    needed = ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "vocab_size",
              "initializer_range")
    missing = [key for key in needed if key not in config]
    if missing:
        raise TrainingError("model configuration lacks keys", where=str(path), value=missing)
    return config
