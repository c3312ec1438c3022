"""Windows of signal processing, and logarithmic steps: class R functions of evenly spaced numbers.

Numbers are spaced in float64 and rounded to float32 once, as `linspace` and `arange` have it; functions are then of
float32, and other types are rounded from that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from samerun.numerics.kernels import functions
from samerun.numerics.operators.declare import Members, NotInTable


def _require_float32(kwargs: dict[str, Any]) -> torch.dtype:
    dtype: torch.dtype = kwargs.get("dtype") or torch.get_default_dtype()
    if dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise NotInTable(f"{dtype}.", "It has one for float32: dtype=torch.float32.")
    return dtype


def _make_window(torch_operator: Callable[..., Tensor], shape: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`shape(k, n, ...)` of k = 0, 1, ..., n - 1 in float64; a periodic window is one longer, without its last."""

    def window(n: int, periodic: bool = True, *settings: float, **kwargs: Any) -> Tensor:
        if n < 0 or not (kwargs.get("dtype") or torch.get_default_dtype()).is_floating_point:
            return torch_operator(n, periodic, *settings, **kwargs)  # torch's own error
        dtype, device = _require_float32(kwargs), kwargs.get("device")
        if n <= 1:
            return torch.ones(n, dtype=dtype, device=device)
        steps = n + periodic
        return shape(torch.arange(n, dtype=torch.float64, device=device), steps, *settings).to(dtype)

    return window


def _cosine_of_angle(k: Tensor, turns: float, n: int) -> Tensor:
    """cos(k * (2 pi turns / (n - 1))): the angle is rounded to float32."""
    return functions.cos(torch.mul(k, turns * 2 * math.pi / (n - 1)).float())


def _hamming(k: Tensor, n: int, alpha: float = 0.54, beta: float = 0.46) -> Tensor:
    """cos * -beta + alpha."""
    return torch.add(torch.mul(_cosine_of_angle(k, 1, n), -beta), alpha)


def _blackman(k: Tensor, n: int) -> Tensor:
    """(cos of twice the angle * 0.08 - cos * 0.5) + 0.42."""
    return torch.add(
        torch.sub(torch.mul(_cosine_of_angle(k, 2, n), 0.08), torch.mul(_cosine_of_angle(k, 1, n), 0.5)), 0.42
    )


def _bartlett(k: Tensor, n: int) -> Tensor:
    """2k / (n - 1) up to the middle, then 2 minus that."""
    rising = torch.mul(k, 2 / (n - 1)).float()
    return torch.where(k <= (n - 1) // 2, rising, torch.rsub(rising, 2))


def logspace(start: Any, end: Any, steps: int, base: float = 10.0, **kwargs: Any) -> Tensor:
    """base to the power of start + i * step, of which the last is `end`; the exponent is rounded to float32."""
    dtype, device = _require_float32(kwargs), kwargs.get("device")
    if steps < 0:
        return torch.logspace(start, end, steps, base)  # torch's own error
    first, last = float(start), float(end)
    step = (last - first) / (steps - 1) if steps > 1 else 0.0
    exponents = torch.add(torch.mul(torch.arange(steps, dtype=torch.float64, device=device), step), first)
    if steps > 1:
        exponents[-1] = last
    power = exponents.float()
    return functions.pow(torch.full_like(power, base), power).to(dtype)


MEMBERS: Members = {
    "aten::hann_window": _make_window(torch.hann_window, lambda k, n: _hamming(k, n, 0.5, 0.5)),
    "aten::hamming_window": _make_window(torch.hamming_window, _hamming),
    "aten::blackman_window": _make_window(torch.blackman_window, _blackman),
    "aten::bartlett_window": _make_window(torch.bartlett_window, _bartlett),
    "aten::logspace": logspace,
}
