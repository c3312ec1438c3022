"""What operators that draw random numbers share: seed, position and device of a draw, and types."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from samerun.numerics.kernels.random import advance_generator
from samerun.numerics.operators.declare import NotInTable

Generator = torch.Generator | None


def begin_draw(generator: Generator, device_name: torch.device | str | None) -> tuple[int, int, torch.device]:
    """Seed, position and device of a draw: what the makers of numbers take behind a shape."""
    device = torch.device(device_name or "cpu")
    if generator is not None and generator.device.type not in ("cpu", "cuda"):
        raise NotInTable(f"a generator on {generator.device}.", "Use a CPU generator.")
    if device.type == "cuda" and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise NotInTable("a CUDA graph: its draws would all be the same.", "Draw outside, and copy into the graph.")
    return *advance_generator(generator), device


def copy_rounded_(x: Tensor, values: Tensor) -> Tensor:
    """x with these values, which are rounded to its type."""
    return x.copy_(values.reshape(x.shape))


def requested_dtype(kwargs: dict[str, Any]) -> torch.dtype:
    """The type that is asked for. Raises NotInTable for complex ones and for devices without kernels."""
    device = torch.device(kwargs.get("device") or "cpu")
    if device.type not in ("cpu", "cuda"):
        raise NotInTable(f"device={device}.", "Portable kernels run on the CPU and on CUDA devices.")
    dtype: torch.dtype = kwargs.get("dtype") or torch.get_default_dtype()
    if dtype.is_complex:
        raise NotInTable(f"{dtype}.", "Draw real and imaginary parts.")
    return dtype


def scale_uniform(u: Tensor, low: float, high: float) -> Tensor:
    """low + u * (high - low)."""
    return u if (low, high) == (0.0, 1.0) else torch.add(torch.mul(u, high - low), low)


def scale_normal(z: Tensor, mean: Any, std: Any) -> Tensor:
    """mean + z * std."""
    if isinstance(mean, float | int) and isinstance(std, float | int) and (mean, std) == (0.0, 1.0):
        return z
    return torch.add(torch.mul(z, std), mean)
