"""What a run of `check --neutral` changes in models: parameters by one ulp, images and weights by their memory format.

Imports torch.
"""

from __future__ import annotations

from typing import Any

import torch

from samerun.record.digests.state_digests import named_parameters
from samerun.record.digests.torch_guards import HiddenFromProgram
from samerun.record.watching.run_numbers.shard_numbers import find_local_tensor

COARSEST_ULP = 2.0**-7
"""An ulp of bfloat16: no disturbance is larger."""


def disturb_parameters(parameters: list[Any], ulps: float, step: int) -> None:
    """Move every element of every parameter by `ulps` ulp, up or down by a pattern fixed by step and position.

    This is what rounding alone makes of a run.
    """
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


class MemoryFormatSwitch:
    """The switch `memory-format`: turns weights and images of four dimensions, and counts how often there were any."""

    def __init__(self, use_counts: dict[str, int]) -> None:
        self.use_counts = use_counts
        self._other_format: Any = None
        """The memory format that the program's weights did not have at first."""

    def turn_weights_and_images(self, model: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The arguments with their images turned; the model's weights are turned where they stand."""
        weights = [p for _, p in named_parameters(model) if p.dim() == 4]
        if not weights:
            return args, kwargs
        self.use_counts["memory-format"] = self.use_counts.get("memory-format", 0) + 1
        if self._other_format is None:
            last = any(not w.is_contiguous() and w.is_contiguous(memory_format=torch.channels_last) for w in weights)
            self._other_format = torch.contiguous_format if last else torch.channels_last
        wanted = self._other_format
        for weight in weights:
            if not weight.is_contiguous(memory_format=wanted):
                with HiddenFromProgram():
                    weight.data = weight.data.contiguous(memory_format=wanted)

        def turn(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                image = value.dim() == 4 and value.is_floating_point()
                return value.contiguous(memory_format=wanted) if image else value
            return type(value)(turn(item) for item in value) if type(value) in (list, tuple) else value

        return turn(args), {name: turn(value) for name, value in kwargs.items()}
