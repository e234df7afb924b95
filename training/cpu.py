"""Megatron-Core without a GPU: calls that name the CUDA device are answered on the CPU.

Megatron names `cuda` in its optimizer, its gradient norm and its checkpoint. While `cuda_on_cpu` is in force, device
arguments, `Tensor.cuda()`, `.to("cuda")` and the string form of `Tensor.type()` are mapped. Where a GPU is there,
nothing is mapped and the same code runs on it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

CPU = torch.device("cpu")


class CudaOnCpu(TorchFunctionMode):
    """Rewrites device arguments of every torch call made in this thread."""

    def __torch_function__(self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (),
                           kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.cuda:
            return args[0]
        if _is_cuda(kwargs.get("device")):
            kwargs = {**kwargs, "device": CPU}
        if func is torch.Tensor.to:
            args = tuple(CPU if _is_cuda(argument) else argument for argument in args)
        result = func(*args, **kwargs)
        if func is torch.Tensor.type and isinstance(result, str):
            # Megatron compares against `torch.cuda.FloatTensor`.
            return result.replace("torch.", "torch.cuda.")
        return result


def _is_cuda(device: object) -> bool:
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, str) and device.startswith("cuda")


@contextmanager
def cuda_on_cpu() -> Iterator[torch.device]:
    """The device to work on. Maps CUDA to the CPU inside the block, but only where no GPU is there."""
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        yield torch.device("cuda", torch.cuda.current_device())
        return
    kept = torch.cuda.current_device, torch.cuda.synchronize
    torch.cuda.current_device = lambda: CPU  # type: ignore[assignment, return-value]
    torch.cuda.synchronize = lambda device=None: None  # type: ignore[assignment]
    try:
        with CudaOnCpu():
            yield CPU
    finally:
        torch.cuda.current_device, torch.cuda.synchronize = kept  # type: ignore[assignment]
