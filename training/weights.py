"""Weights in and out: HF Llama safetensors and Megatron's state, the same numbers in another order.

Megatron keeps query, key and value of a layer in one matrix, interleaved by key-value group, and gate and up
projections one above the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save

from schemas.errors import TrainingError
from training.model import Architecture
from training.publish import WEIGHTS_FILE, write_weights

State = dict[str, torch.Tensor]


def to_megatron(weights: Mapping[str, torch.Tensor], architecture: Architecture) -> State:
    """Megatron's parameters by name. Raises TrainingError naming the tensor that is missing or has another shape."""
    taken = _Taking(weights)
    state = {"embedding.word_embeddings.weight": taken["model.embed_tokens.weight"]}
    for layer in range(architecture.num_hidden_layers):
        state |= _layer_to_megatron(taken, layer, architecture)
    state["decoder.final_layernorm.weight"] = taken["model.norm.weight"]
    if not architecture.tie_word_embeddings:
        state["output_layer.weight"] = taken["lm_head.weight"]
    taken.check_all_used(architecture.tie_word_embeddings)
    return state


def from_megatron(state: Mapping[str, torch.Tensor], architecture: Architecture) -> State:
    """The inverse of `to_megatron`."""
    weights = {"model.embed_tokens.weight": state["embedding.word_embeddings.weight"]}
    for layer in range(architecture.num_hidden_layers):
        weights |= _layer_from_megatron(state, layer, architecture)
    weights["model.norm.weight"] = state["decoder.final_layernorm.weight"]
    if not architecture.tie_word_embeddings:
        weights["lm_head.weight"] = state["output_layer.weight"]
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in weights.items()}


class _Taking:
    """Reads tensors and remembers which, so that none is left unread."""

    def __init__(self, weights: Mapping[str, torch.Tensor]) -> None:
        self._weights = weights
        self._used: set[str] = set()

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self._weights:
            raise TrainingError("tensor is missing in the weights", value=name)
        self._used.add(name)
        return self._weights[name].to(torch.float32)

    def check_all_used(self, tied: bool) -> None:
        rest = set(self._weights) - self._used - ({"lm_head.weight"} if tied else set())
        if rest:
            raise TrainingError("weights hold tensors that the model has no place for", value=sorted(rest))


def _groups(architecture: Architecture) -> tuple[int, int, int]:
    groups = architecture.num_key_value_heads
    return groups, architecture.num_attention_heads // groups * architecture.head_dim, architecture.head_dim


def _layer_to_megatron(weights: _Taking, layer: int, architecture: Architecture) -> State:
    theirs, ours = f"model.layers.{layer}.", f"decoder.layers.{layer}."
    groups, query_rows, key_rows = _groups(architecture)
    width = architecture.hidden_size
    query = weights[f"{theirs}self_attn.q_proj.weight"].reshape(groups, query_rows, width)
    key = weights[f"{theirs}self_attn.k_proj.weight"].reshape(groups, key_rows, width)
    value = weights[f"{theirs}self_attn.v_proj.weight"].reshape(groups, key_rows, width)
    gate, up = weights[f"{theirs}mlp.gate_proj.weight"], weights[f"{theirs}mlp.up_proj.weight"]
    return {
        f"{ours}input_layernorm.weight": weights[f"{theirs}input_layernorm.weight"],
        f"{ours}self_attention.linear_qkv.weight": torch.cat([query, key, value], dim=1).reshape(-1, width),
        f"{ours}self_attention.linear_proj.weight": weights[f"{theirs}self_attn.o_proj.weight"],
        f"{ours}pre_mlp_layernorm.weight": weights[f"{theirs}post_attention_layernorm.weight"],
        f"{ours}mlp.linear_fc1.weight": torch.cat([gate, up]),
        f"{ours}mlp.linear_fc2.weight": weights[f"{theirs}mlp.down_proj.weight"],
    }


def _layer_from_megatron(state: Mapping[str, torch.Tensor], layer: int, architecture: Architecture) -> State:
    theirs, ours = f"model.layers.{layer}.", f"decoder.layers.{layer}."
    groups, query_rows, key_rows = _groups(architecture)
    width = architecture.hidden_size
    joined = state[f"{ours}self_attention.linear_qkv.weight"].reshape(groups, query_rows + 2 * key_rows, width)
    parts = torch.split(joined, [query_rows, key_rows, key_rows], dim=1)
    query, key, value = (part.reshape(-1, width) for part in parts)
    gate, up = state[f"{ours}mlp.linear_fc1.weight"].chunk(2)
    return {
        f"{theirs}input_layernorm.weight": state[f"{ours}input_layernorm.weight"],
        f"{theirs}self_attn.q_proj.weight": query,
        f"{theirs}self_attn.k_proj.weight": key,
        f"{theirs}self_attn.v_proj.weight": value,
        f"{theirs}self_attn.o_proj.weight": state[f"{ours}self_attention.linear_proj.weight"],
        f"{theirs}post_attention_layernorm.weight": state[f"{ours}pre_mlp_layernorm.weight"],
        f"{theirs}mlp.gate_proj.weight": gate,
        f"{theirs}mlp.up_proj.weight": up,
        f"{theirs}mlp.down_proj.weight": state[f"{ours}mlp.linear_fc2.weight"],
    }


def load_weights(model: torch.nn.Module, directory: Path, architecture: Architecture) -> None:
    """Fill every parameter of `model` from the directory, or raise TrainingError and say which does not fit."""
    path = directory / WEIGHTS_FILE
    try:
        weights = load_file(path)
    except OSError as wrong:
        raise TrainingError(f"weights cannot be read ({wrong})", where=str(path)) from None
    state = to_megatron(weights, architecture)
    parameters = dict(model.named_parameters())
    if parameters.keys() != state.keys():
        raise TrainingError("weights and model differ in their tensors", where=str(path),
                            value=sorted(parameters.keys() ^ state.keys()))
    with torch.no_grad():
        for name, parameter in parameters.items():
            if parameter.shape != state[name].shape:
                raise TrainingError(f"tensor {name} has shape {tuple(state[name].shape)}, the model needs "
                                    f"{tuple(parameter.shape)}", where=str(path))
            parameter.copy_(state[name])


def export_weights(model: torch.nn.Module, architecture: Architecture, base: Path, directory: Path) -> str:
    """Write the model as an HF directory with the base's other files; its digest."""
    state = from_megatron(dict(model.named_parameters()), architecture)
    return write_weights(directory, base, save(state, metadata={"format": "pt"}))
