"""Parameters moved by one ulp or so: what rounding alone makes of a run. Imports torch."""

from __future__ import annotations

from typing import Any

import torch

from samerun.record.digests.torch_guards import HiddenFromProgram
from samerun.record.watching.shard_numbers import find_local_tensor

COARSEST_ULP = 2.0**-7
"""An ulp of bfloat16: no disturbance is larger."""


def disturb_parameters(parameters: list[Any], ulps: float, step: int) -> None:
    """Move every element of every parameter by `ulps` ulp, up or down by a pattern fixed by step and position."""
    with HiddenFromProgram():
        for at, parameter in enumerate(parameters):
            local = find_local_tensor(parameter)
            if local is not None and local.is_floating_point():
                value = local.data
                pattern = torch.arange(value.numel(), dtype=torch.float64, device=value.device)
                pattern = (pattern * 0.6180339887 + 0.31 * step + 0.17 * at) % 1 < 0.5
                sign = pattern.reshape(value.shape).to(value.dtype) * 2 - 1
                ulp = torch.finfo(value.dtype).eps
                value.mul_(1 + sign * max(ulp, min(ulps * ulp, COARSEST_ULP)))
