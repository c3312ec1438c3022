"""What fresh memory is filled with when it is held or varied on purpose."""

from __future__ import annotations

from typing import Any

PATTERN_FLOAT = 2.71875  # exact in every floating dtype of torch down to float8
PATTERN_INT = 3  # small, so that a program that uses it as an index fails no more often than with garbage


def fill_in_place(tensor: Any, pattern: str) -> None:
    """Fill a fresh tensor in place; autograd is not told. Dtypes that cannot be filled stay as they are."""
    import torch

    if tensor.device.type == "meta" or tensor.layout is not torch.strided or tensor.is_quantized:
        return
    if pattern == "zeros":
        value: Any = 0
    elif tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        value = PATTERN_FLOAT
    else:
        value = PATTERN_INT
    try:
        tensor.fill_(value)
    except (RuntimeError, TypeError):
        pass


def torch_fills_fresh_memory() -> bool:
    """Does torch give fresh tensors a known value itself? Then what they hold is no accident, and is not varied."""
    import torch

    settings: Any = torch.utils.deterministic
    return torch.are_deterministic_algorithms_enabled() and bool(settings.fill_uninitialized_memory)
