"""What the operators of this room share: types, dimensions, memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree

from samerun.base.errors import SamerunError

COMPUTE_TYPES = (torch.float32, torch.float64)
STORAGE_TYPES = (torch.bfloat16, torch.float16)


def require_opmath_dtype(
    operator: str, *tensors: torch.Tensor, supported_dtypes: tuple[torch.dtype, ...] = COMPUTE_TYPES
) -> torch.dtype:
    """The type in which `operator` computes on these: their own, or float32 for bfloat16 and float16.

    Raises SamerunError for other types, types that differ, devices that differ, or one that is no CPU or CUDA device.
    """
    dtype = tensors[0].dtype
    if len(tensors) == 1 and dtype in supported_dtypes and tensors[0].is_cpu:
        return dtype
    for tensor in tensors:
        if tensor.dtype != dtype:
            raise SamerunError(f"{operator}: got {dtype} and {tensor.dtype}.", "Convert them to one type first.")
        if not (tensor.is_cpu or tensor.is_cuda):
            raise SamerunError(f"{operator}: portable kernels take CPU and CUDA tensors, got one on {tensor.device}.")
        if tensor.device != tensors[0].device:
            raise SamerunError(f"{operator}: got tensors on {tensors[0].device} and {tensor.device}.")
    if dtype in STORAGE_TYPES:
        return torch.float32
    if dtype not in supported_dtypes:
        names = ", ".join(str(each).removeprefix("torch.") for each in (*supported_dtypes, *STORAGE_TYPES))
        raise SamerunError(f"{operator}: {dtype} has no portable kernel.", f"It has one for {names}.")
    return dtype


def require_numel(name: str, x: torch.Tensor | None, expected_numel: int) -> None:
    """Raise torch's RuntimeError unless x, which a kernel reads or writes `expected_numel` elements of, has so many."""
    if x is not None and x.numel() != expected_numel:
        raise RuntimeError(f"{name} should contain {expected_numel} elements not {x.numel()}")


def detach_cast_contiguous(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """x in `dtype`, contiguous. Widening is exact; a dense x of that type is returned as it is."""
    if x.requires_grad:
        x = x.detach()
    if x.dtype != dtype:
        x = x.to(dtype)
    return x if x.is_contiguous() else x.contiguous()


def normalize_reduction_dims(dims: int | Sequence[int] | None, ndim: int) -> list[int]:
    """The dimensions meant, ascending, each once; None and the empty list mean all.

    Raises IndexError and RuntimeError with torch's own words.
    """
    if dims is None:
        return list(range(ndim))
    if isinstance(dims, int) and 0 <= dims < ndim:
        return [dims]
    wanted = [dims] if isinstance(dims, int) else list(dims)
    most = max(ndim, 1)
    for dim in wanted:
        if not -most <= dim < most:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-most}, {most - 1}], but got {dim})"
            )
    found = [dim % most for dim in wanted]
    for dim in found:
        if found.count(dim) > 1:
            raise RuntimeError(f"dim {dim} appears multiple times in the list of dims")
    return sorted(found)[:ndim] if found else list(range(ndim))


def outer_dim_inner_sizes(x: torch.Tensor, dim: int) -> tuple[int, int, int]:
    """How many elements lie before, along and after dimension `dim`: x is [outer, n, inner]."""
    if x.ndim == 0:
        return 1, 1, 1
    size = list(x.shape)
    outer = inner = 1
    for each in size[:dim]:
        outer *= each
    for each in size[dim + 1 :]:
        inner *= each
    return outer, size[dim], inner


def to_numpy(x: torch.Tensor) -> np.ndarray:
    """The numbers of a tensor on the CPU, for the reference. Raises SamerunError for another device."""
    if not x.is_cpu:
        raise SamerunError(f"{x.dtype} has no portable kernel on {x.device}.", "It runs on the CPU: tensor.cpu().")
    return x.detach().numpy()


def call_numpy_reference(compute: Callable[..., Any], *tensors: torch.Tensor | None) -> Any:
    """The result of a function on NumPy arrays, as a tensor (or several)."""
    got = compute(*(None if x is None else to_numpy(x) for x in tensors))
    if isinstance(got, tuple):
        return tuple(None if each is None else torch.from_numpy(each) for each in got)
    return torch.from_numpy(got)


def copy_tensors_in_pytree(arguments: Any) -> Any:
    """The same arguments, in any containers, with tensors in memory of their own and laid out as they were.

    A tensor that stands in two places (`out=` and an input) is one tensor in the copy too.
    """
    copies: dict[int, torch.Tensor] = {}

    def copy(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in copies:
            copies[id(leaf)] = copy_tensor(leaf)
        return copies[id(leaf)]

    def copy_tensor(leaf: torch.Tensor) -> torch.Tensor:
        once = leaf.detach()
        for dim, stride in enumerate(leaf.stride()):
            once = once.narrow(dim, 0, 1) if stride == 0 and leaf.shape[dim] > 1 else once  # expanded
        try:
            fresh = torch.empty_strided(once.shape, once.stride(), dtype=once.dtype, device=once.device)
            return fresh.copy_(once).expand(leaf.shape)
        except RuntimeError:  # windows that overlap
            return leaf.detach().clone()

    return _pytree.tree_map(copy, arguments)
