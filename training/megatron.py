"""Megatron-Core's names, imported once and quietly, and its process groups.

Importing Megatron warns about optional accelerators that this product does not use. Exactly these warnings are
silenced, during the import only; any other is seen.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch

with warnings.catch_warnings():
    for _message in ("Transformer Engine and Apex are not installed", "Apex is not installed"):
        warnings.filterwarnings("ignore", message=_message)
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.dist_checkpointing.strategies import torch as torch_format
    from megatron.core.dist_checkpointing.strategies.torch import MCoreSavePlanner, TorchDistSaveShardedStrategy
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.optimizer import MegatronOptimizer, OptimizerConfig, get_megatron_optimizer
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core.tensor_parallel.random import initialize_rng_tracker
    from megatron.core.transformer.transformer_config import TransformerConfig

__all__ = [
    "DistributedDataParallel",
    "DistributedDataParallelConfig",
    "GPTModel",
    "MCoreSavePlanner",
    "MegatronOptimizer",
    "OptimizerConfig",
    "TorchDistSaveShardedStrategy",
    "TransformerConfig",
    "dist_checkpointing",
    "finalize_model_grads",
    "get_forward_backward_func",
    "get_gpt_layer_local_spec",
    "get_megatron_optimizer",
    "parallel_state",
    "process_groups",
    "torch_format",
]

_PATIENCE = timedelta(days=30)
"""Ranks wait in a collective while the first one waits for a batch; a dead rank ends them all through torchrun."""


@contextmanager
def process_groups() -> Iterator[int]:
    """Join the other ranks (torchrun's variables; alone without them) and lay out Megatron's groups: the rank."""
    alone = "RANK" not in os.environ
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    if alone:
        store = torch.distributed.HashStore()  # type: ignore[attr-defined]
        torch.distributed.init_process_group(backend, store=store, rank=0, world_size=1, timeout=_PATIENCE)
    else:
        torch.distributed.init_process_group(backend, timeout=_PATIENCE)
    try:
        parallel_state.initialize_model_parallel(1, 1)
        initialize_rng_tracker(inference_rng_tracker=True)
        yield torch.distributed.get_rank()
    finally:
        parallel_state.destroy_model_parallel()
        torch.distributed.destroy_process_group()
