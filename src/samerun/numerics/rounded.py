"""Functions of two arguments that have no correctly rounded kernel yet: computed in float64, rounded to float32.

Rounding hides nearly all differences between float64 libraries, not provably all of them.
"""

from __future__ import annotations

import torch
from torch import Tensor


def power(x: Tensor, y: Tensor) -> Tensor:
    """x ** y of float32."""
    return torch.pow(x.detach().double(), y.detach().double()).to(torch.float32)


def atan2(y: Tensor, x: Tensor) -> Tensor:
    """The angle of (x, y), float32."""
    return torch.atan2(y.detach().double(), x.detach().double()).to(torch.float32)
