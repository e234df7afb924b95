"""A Llama-family forward pass for sampling: float32, in process, reads Hugging Face directories.

Two entry points share the layers. `prefill` reads whole contexts (right-padded) and fills the rows of a cache;
`step` appends one token to every row. Rows are independent: a row's result does not depend on who else is in the
batch beyond the rounding of matrix products. Equal to transformers' LlamaForCausalLM to 1e-5 (tested).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.nn import functional as F

from schemas.errors import PolicyError

_ROUND = 64
"""Cache lengths grow by this many positions."""
_NEG = float("-inf")


class LlamaConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of `config.json` that matter here; others are ignored."""

    model_type: str
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-6
    rope_theta: float | None = None
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None
    attention_bias: bool = False
    mlp_bias: bool = False
    tie_word_embeddings: bool = False

    @property
    def key_heads(self) -> int:
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def head(self) -> int:
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def theta(self) -> float:
        return self.rope_theta or float((self.rope_parameters or {}).get("rope_theta", 10000.0))


def read_config(directory: Path) -> LlamaConfig:
    """Raises PolicyError where the model is of another family or uses what this forward pass does not have."""
    path = directory / "config.json"
    try:
        config = msgspec.convert(json.loads(path.read_text(encoding="utf-8")), LlamaConfig)
    except (OSError, ValueError, msgspec.MsgspecError) as wrong:
        raise PolicyError(f"model configuration cannot be read ({wrong})", where=str(path)) from None
    scaling = config.rope_scaling or config.rope_parameters or {}
    if config.model_type != "llama" or config.attention_bias or config.mlp_bias or \
            scaling.get("rope_type", "default") != "default":
        raise PolicyError("only plain Llama-family models run in process", where=str(path), value=config.model_type,
                          hint="no biases, no scaled rotary embedding")
    return config


class _Layer:
    """Weights of one layer; projections that read the same input are one matrix."""

    def __init__(self, take: Callable[[str], Tensor], index: int) -> None:
        def of(name: str) -> Tensor:
            return take(f"model.layers.{index}.{name}.weight")

        self.attention_norm, self.mlp_norm = of("input_layernorm"), of("post_attention_layernorm")
        self.qkv = torch.cat([of(f"self_attn.{name}_proj") for name in "qkv"])
        self.out = of("self_attn.o_proj")
        self.gate_up = torch.cat([of("mlp.gate_proj"), of("mlp.up_proj")])
        self.down = of("mlp.down_proj")


class Cache:
    """Keys and values of the rows of a batch. Rows 0..n-1 are in use, without holes."""

    def __init__(self, config: LlamaConfig) -> None:
        self._shape = (config.num_hidden_layers, config.key_heads, config.head)
        self.rows = self.length = 0
        self.keys = self.values = torch.empty(0)

    def reserve(self, rows: int, length: int, used: int) -> None:
        """Room for `rows` rows of `length` positions; the first `used` rows keep their content."""
        if rows <= self.rows and length <= self.length:
            return
        layers, heads, head = self._shape
        rows = self.rows if rows <= self.rows else max(rows, 2 * self.rows)
        length = max(-(-length // _ROUND) * _ROUND, self.length)
        grown = []
        for old in (self.keys, self.values):
            new = torch.zeros(layers, rows, heads, length, head)
            if used:
                new[:, :used, :, :self.length] = old[:, :used]
            grown.append(new)
        self.keys, self.values = grown
        self.rows, self.length = rows, length

    def move(self, sources: Tensor, targets: Tensor, length: int) -> None:
        for cache in (self.keys, self.values):
            cache[:, targets, :, :length] = cache[:, sources, :, :length]


class Llama:
    """One set of weights. Not thread-safe in its use of a cache; weights are read only."""

    def __init__(self, config: LlamaConfig, tensors: dict[str, Tensor]) -> None:
        def take(name: str) -> Tensor:
            if name not in tensors:
                raise PolicyError("a tensor is missing from the weights", value=name)
            return tensors[name].float()

        self.config = config
        self.embedding = take("model.embed_tokens.weight")
        self.layers = [_Layer(take, index) for index in range(config.num_hidden_layers)]
        self.norm = take("model.norm.weight")
        self.output = self.embedding if config.tie_word_embeddings else take("lm_head.weight")
        if self.embedding.shape != (config.vocab_size, config.hidden_size):
            raise PolicyError("weights do not have the shape that the configuration says",
                              where="model.embed_tokens.weight", value=tuple(self.embedding.shape))
        frequency = config.theta ** (-torch.arange(0, config.head, 2, dtype=torch.float32) / config.head)
        angle = torch.outer(torch.arange(config.max_position_embeddings, dtype=torch.float32), frequency)
        self.cos, self.sin = (torch.cat([part, part], -1) for part in (angle.cos(), angle.sin()))

    def prefill(self, ids: Tensor, lengths: Tensor, cache: Cache | None = None, first: int = 0) -> Tensor:
        """Logits after the last token of each context. `ids` is right-padded; with a cache, keys and values go to
        rows `first`..., where the padding's are overwritten before anyone reads them."""
        hidden = self._prefill(ids, cache, first)
        return self._logits(hidden[torch.arange(len(ids)), lengths - 1])

    def every_logit(self, ids: Tensor) -> Tensor:
        """Logits after every position: the plain forward pass that sampling is checked against."""
        return self._logits(self._prefill(ids, None, 0))

    def _prefill(self, ids: Tensor, cache: Cache | None, first: int) -> Tensor:
        rows, length = ids.shape
        cos, sin = self.cos[:length], self.sin[:length]
        groups = self.config.num_attention_heads // self.config.key_heads

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            query, key, value = _rotate(query, cos, sin), _rotate(key, cos, sin), value
            if cache is not None:
                cache.keys[layer, first:first + rows, :, :length] = key
                cache.values[layer, first:first + rows, :, :length] = value
            key, value = (part.repeat_interleave(groups, 1) for part in (key, value))
            return F.scaled_dot_product_attention(query, key, value, is_causal=True)

        return self._layers(ids, attend)

    def step(self, ids: Tensor, positions: Tensor, cache: Cache, reach: int) -> Tensor:
        """Logits after one more token in each of the first rows of `cache`. `positions` are where the tokens stand,
        all below `reach`."""
        rows = len(ids)
        cos, sin = self.cos[positions][:, None, None], self.sin[positions][:, None, None]
        row = torch.arange(rows)
        hidden_from = torch.zeros(rows, 1, 1, reach).masked_fill_(
            torch.arange(reach) > positions[:, None, None, None], _NEG)
        scale = self.config.head ** -0.5

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            query, key = _rotate(query, cos, sin), _rotate(key, cos, sin)
            cache.keys[layer, row, :, positions] = key[:, :, 0]
            cache.values[layer, row, :, positions] = value[:, :, 0]
            keys, values = (part[layer, :rows, :, :reach] for part in (cache.keys, cache.values))
            grouped = query.reshape(rows, self.config.key_heads, -1, self.config.head)
            weight = torch.matmul(grouped, keys.transpose(-1, -2)).mul_(scale).add_(hidden_from).softmax(-1)
            return torch.matmul(weight, values).reshape(rows, -1, 1, self.config.head)

        return self._logits(self._layers(ids[:, None], attend)[:, 0])

    def _layers(self, ids: Tensor, attend: Callable[[int, Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        config = self.config
        rows, length = ids.shape
        sizes = [config.num_attention_heads, config.key_heads, config.key_heads]
        hidden = F.embedding(ids, self.embedding)
        for index, layer in enumerate(self.layers):
            projected = F.linear(self._normed(hidden, layer.attention_norm), layer.qkv)
            query, key, value = torch.split(projected.view(rows, length, -1, config.head).transpose(1, 2), sizes, 1)
            attended = attend(index, query, key, value).transpose(1, 2).reshape(rows, length, -1)
            hidden = hidden + F.linear(attended, layer.out)
            gate, up = F.linear(self._normed(hidden, layer.mlp_norm), layer.gate_up).chunk(2, -1)
            hidden = hidden + F.linear(F.silu(gate) * up, layer.down)
        return hidden

    def _normed(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(hidden, weight.shape, weight, self.config.rms_norm_eps)

    def _logits(self, hidden: Tensor) -> Tensor:
        return F.linear(self._normed(hidden, self.norm), self.output)


def _rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding; the halves of a head are its real and imaginary parts."""
    first, second = heads.chunk(2, -1)
    return heads * cos + torch.cat([-second, first], -1) * sin


def load_llama(directory: Path) -> Llama:
    """Configuration and all `*.safetensors` of a directory. Raises PolicyError if something is missing or wrong."""
    from safetensors.torch import load_file

    config = read_config(directory)
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise PolicyError("no weights (*.safetensors)", where=str(directory))
    tensors: dict[str, Tensor] = {}
    try:
        for file in files:
            tensors.update(load_file(file))
        return Llama(config, tensors)
    except PolicyError as wrong:
        raise PolicyError(wrong.what, where=str(directory), value=wrong.value) from None
    except Exception as wrong:
        raise PolicyError(f"weights cannot be read ({wrong})", where=str(directory)) from None
