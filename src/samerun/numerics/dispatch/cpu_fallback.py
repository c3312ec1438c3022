"""Operators that have a portable kernel for the CPU and none for CUDA: computed on the CPU, with the CPU's bits.

Tensors are copied to the CPU and results back, which waits for the device each time. What a program trains with has
kernels for CUDA; linear algebra, complex numbers and a few operators in float64, bfloat16 and float16 have not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils import _pytree

CpuRunner = Callable[[OpOverload, Any, Any], Any]
"""Runs an operator on tensors of the CPU: (operator, positional arguments, keyword arguments) -> results."""


_TAKE_TENSORS_OF_THE_CPU = frozenset(
    f"aten::{name}"
    for name in (
        "copy", "_to_copy", "index", "_index_put_impl", "index_put", "_unsafe_index", "_unsafe_index_put", "_ctc_loss",
        "_ctc_loss_backward", "_pack_padded_sequence", "tensor_split", "_use_cudnn_ctc_loss", "_use_miopen_ctc_loss",
    )
)  # fmt: skip
"""Operators that take indices, lengths or sources of the CPU beside tensors of a device."""


def require_one_device(func: OpOverload, args: Any) -> None:
    """Raise torch's RuntimeError for tensors of two devices, whose memory one kernel cannot read.

    Tensors without dimensions are numbers, which torch takes from the CPU.
    """
    devices: list[torch.device] = []
    for argument in args:
        for tensor in argument if isinstance(argument, (list, tuple)) else (argument,):
            if isinstance(tensor, Tensor) and tensor.dim() and tensor.device not in devices:
                devices.append(tensor.device)
    if len(devices) > 1 and func._schema.name.rstrip("_") not in _TAKE_TENSORS_OF_THE_CPU:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{devices[0]} and {devices[1]}! ({func})"
        )


def can_copy_to_cpu() -> bool:
    """False while a CUDA graph is captured: nothing can be waited for."""
    return not torch.cuda.is_current_stream_capturing()


def run_on_cpu(run: CpuRunner, func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Run `func` on copies of its CUDA tensors; what it returns or writes stands on their device afterwards.

    Raises what `run` raises, with nothing written then.
    """
    copies: dict[int, Tensor] = {}
    devices: list[torch.device] = []

    def to_cpu(leaf: Any) -> Any:
        if isinstance(leaf, torch.device):
            return torch.device("cpu") if leaf.type == "cuda" else leaf
        if not isinstance(leaf, Tensor) or not leaf.is_cuda:
            return leaf
        devices.append(leaf.device)
        return copies.setdefault(id(leaf), leaf.cpu())  # a tensor given twice is one tensor

    cpu_args, cpu_kwargs = _pytree.tree_map(to_cpu, (args, kwargs))
    found = run(func, cpu_args, cpu_kwargs)
    originals = {id(copies[id(leaf)]): leaf for leaf in _pytree.tree_leaves((args, kwargs)) if id(leaf) in copies}
    for given in _list_written_tensors(func, cpu_args, cpu_kwargs):
        if id(given) in originals:
            original = originals[id(given)]
            (original if original.shape == given.shape else original.resize_(given.shape)).copy_(given)
    device = devices[0] if devices else None

    def to_device(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or device is None:
            return leaf
        return originals[id(leaf)] if id(leaf) in originals else leaf.to(device)

    return _pytree.tree_map(to_device, found)


def _list_written_tensors(func: OpOverload, args: Any, kwargs: Any) -> list[Tensor]:
    """The arguments that the operator's schema says it writes."""
    named = {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)} | kwargs
    written = [
        named.get(argument.name)
        for argument in func._schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return [leaf for leaf in _pytree.tree_leaves(written) if isinstance(leaf, Tensor)]
