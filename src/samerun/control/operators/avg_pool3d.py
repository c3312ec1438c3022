"""The gradient of nn.AvgPool3d."""

from __future__ import annotations

import torch
from torch import Tensor

from samerun.control.operators.declare import Kernel, Operator, widened
from samerun.control.operators.pooling_windows import sliding
from samerun.control.operators.windows import gathered


def gradient(
    grad_output: Tensor, self: Tensor, kernel_size: list[int], stride: list[int], padding: list[int],
    ceil_mode: bool, count_include_pad: bool, divisor_override: int | None,
) -> Tensor:  # fmt: skip
    sizes, steps, pads = _three(kernel_size), _three(stride or kernel_size), _three(padding)
    out = widened(grad_output)
    if divisor_override:
        out = out / divisor_override
    for dim in (-1, -2, -3):
        inputs, size, step, pad = self.shape[dim], sizes[dim], steps[dim], pads[dim]
        if not divisor_override:
            counts = _counts(out.shape[dim], inputs, size, step, pad, count_include_pad, out.device)
            out = out / counts.view(-1, *(1,) * (-1 - dim))
        out = gathered(out, dim, sliding(inputs, out.shape[dim], size, step, pad, out.device))
    return out.to(grad_output.dtype)


def _three(given: list[int]) -> list[int]:
    return list(given) * 3 if len(given) == 1 else list(given)


def _counts(outputs: int, inputs: int, size: int, step: int, pad: int, padded: bool, device: torch.device) -> Tensor:
    """Over how many cells each output averages: the padding counts where the module was told so."""
    start = torch.arange(outputs, device=device) * step - pad
    end = (start + size).clamp(max=inputs + pad)
    return end - start if padded else end.clamp(max=inputs) - start.clamp(min=0)


OPERATOR = Operator(
    "avg_pool3d",
    ("torch.nn.AvgPool3d",),
    "The gradient of nn.AvgPool3d.",
    "One dimension after the other, each input gathers the outputs that averaged over it, in ascending order.",
    "For each dimension a gather and a sum for each window that an input lies in (size / stride).",
    (Kernel(gradient, ("avg_pool3d_backward", "avg_pool3d_backward.grad_input")),),
)
