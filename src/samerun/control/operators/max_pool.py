"""The gradients of max pooling whose windows overlap: adaptive, fractional, and nn.MaxPool3d."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from samerun.control.operators.declare import Kernel, Operator
from samerun.control.operators.segments import in_planes, summed


def gradient(grad_output: Tensor, self: Tensor, indices: Tensor, dims: int) -> Tensor:
    """indices: the position, in its plane, of the input that each output took."""
    plane = self.shape[-dims:].numel()
    planes = self.shape[:-dims].numel()
    keys = in_planes(indices, planes, plane)
    return summed(keys, grad_output.reshape(-1), planes * plane).view(self.shape)


def adaptive_2d(grad_output: Tensor, self: Tensor, indices: Tensor) -> Tensor:
    return gradient(grad_output, self, indices, 2)


def adaptive_3d(grad_output: Tensor, self: Tensor, indices: Tensor) -> Tensor:
    return gradient(grad_output, self, indices, 3)


def fractional_2d(grad_output: Tensor, self: Tensor, size: Any, output_size: Any, indices: Tensor) -> Tensor:
    return gradient(grad_output, self, indices, 2)


def fractional_3d(grad_output: Tensor, self: Tensor, size: Any, output_size: Any, indices: Tensor) -> Tensor:
    return gradient(grad_output, self, indices, 3)


def sliding_3d(
    grad_output: Tensor, self: Tensor, size: Any, stride: Any, padding: Any, dilation: Any, ceil: bool, indices: Tensor
) -> Tensor:
    return gradient(grad_output, self, indices, 3)


def _kernel(compute: Any, name: str) -> Kernel:
    return Kernel(compute, (name, f"{name}.grad_input"))


OPERATOR = Operator(
    "max_pool",
    (
        "torch.nn.AdaptiveMaxPool2d", "torch.nn.FractionalMaxPool2d", "torch.nn.FractionalMaxPool3d",
        "torch.nn.MaxPool3d",
    ),
    "The gradients of nn.AdaptiveMaxPool2d and 3d, nn.FractionalMaxPool2d and 3d, and nn.MaxPool3d.",
    "The gradients of the outputs are sorted by the input that each took, stably, and those of one input are added"
    " in the order of the outputs.",
    "A sort of as many 64-bit numbers as there are outputs; the device is waited for.",
    (
        _kernel(adaptive_2d, "adaptive_max_pool2d_backward"),
        _kernel(adaptive_3d, "adaptive_max_pool3d_backward"),
        _kernel(fractional_2d, "fractional_max_pool2d_backward"),
        _kernel(fractional_3d, "fractional_max_pool3d_backward"),
        _kernel(sliding_3d, "max_pool3d_with_indices_backward"),
    ),
)  # fmt: skip
