"""Megatron's GPT model for a Llama architecture in the HF form: RMSNorm, SwiGLU, RoPE, grouped queries, no biases.

What the model cannot represent is refused by name; nothing is ignored.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import torch

from schemas.errors import TrainingError
from training.megatron import GPTModel, TransformerConfig, get_gpt_layer_local_spec


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a Llama `config.json` that shapes the computation."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    tie_word_embeddings: bool


_ONLY = {"model_type": "llama", "hidden_act": "silu", "attention_bias": False, "mlp_bias": False}


def read_architecture(directory: Path) -> Architecture:
    """Of a weights directory. Raises TrainingError for what this learner does not train."""
    path = directory / "config.json"
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError) as wrong:
        raise TrainingError(f"model configuration cannot be read ({wrong})", where=str(path)) from None
    for key, only in _ONLY.items():
        if config.get(key, only) != only:
            raise TrainingError(f"the learner trains models with `{key}` {only!r} only", where=str(path),
                                value=config[key])
    try:
        return msgspec.convert(_with_defaults(config, path), Architecture)
    except msgspec.ValidationError as wrong:
        raise TrainingError(f"model configuration is not that of a Llama ({wrong})", where=str(path)) from None


def _with_defaults(config: dict[str, Any], path: Path) -> dict[str, Any]:
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise TrainingError("the learner has no scaled rotary embedding", where=str(path), value=kind)
    heads = config.get("num_attention_heads") or 1
    defaults = {
        "num_key_value_heads": heads, "head_dim": (config.get("hidden_size") or 0) // heads, "rms_norm_eps": 1e-6,
        "rope_theta": rope.get("rope_theta", 10000.0), "max_position_embeddings": 2048, "tie_word_embeddings": False}
    return defaults | {key: value for key, value in config.items() if value is not None}


def transformer_config(architecture: Architecture) -> TransformerConfig:
    return TransformerConfig(
        num_layers=architecture.num_hidden_layers,
        hidden_size=architecture.hidden_size,
        ffn_hidden_size=architecture.intermediate_size,
        num_attention_heads=architecture.num_attention_heads,
        num_query_groups=architecture.num_key_value_heads,
        kv_channels=architecture.head_dim,
        normalization="RMSNorm",
        layernorm_epsilon=architecture.rms_norm_eps,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        add_bias_linear=False,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        # The fused forms need a GPU.
        masked_softmax_fusion=False,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        apply_rope_fusion=False,
        # Weights are always loaded afterwards, never drawn here.
        perform_initialization=False,
        use_cpu_initialization=True,
        params_dtype=torch.float32,
        pipeline_dtype=torch.float32,
        # The loss is a sum over tokens and a count; gradients are divided by the count of all ranks.
        calculate_per_token_loss=True,
        cuda_graph_scope=[],
        deterministic_mode=True,
    )


def build_model(architecture: Architecture) -> GPTModel:
    """A model whose weights are still undefined: `training.weights.load_weights` fills them."""
    return GPTModel(
        transformer_config(architecture),
        get_gpt_layer_local_spec(normalization="RMSNorm"),
        vocab_size=architecture.vocab_size,
        max_sequence_length=architecture.max_position_embeddings,
        position_embedding_type="rope",
        rotary_base=architecture.rope_theta,
        share_embeddings_and_output_weights=architecture.tie_word_embeddings,
        parallel_output=False,
    )
