"""softmax, log_softmax and logsumexp."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from samerun.numerics.aten_handlers.declare import Members, to_floating
from samerun.numerics.kernels import softmax as kernels


def _convert_input_to_floating(x: Tensor, half_to_float: bool) -> Tensor:
    return x.float() if half_to_float else to_floating(x)


def softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    return kernels.softmax(_convert_input_to_floating(x, half_to_float), dim)


def log_softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    return kernels.log_softmax(_convert_input_to_floating(x, half_to_float), dim)


def _dtype_of_gradient(grad_output: Tensor, input_dtype: torch.dtype) -> torch.dtype:
    """Narrower than the incoming gradient only where the forward pass widened half precision."""
    return input_dtype if grad_output.dtype is torch.float32 else grad_output.dtype


def softmax_backward(grad_output: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    return kernels.softmax_backward(grad_output, output, dim).to(_dtype_of_gradient(grad_output, input_dtype))


def log_softmax_backward(grad_output: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    return kernels.log_softmax_backward(grad_output, output, dim).to(_dtype_of_gradient(grad_output, input_dtype))


def logsumexp(x: Tensor, dim: Sequence[int], keepdim: bool = False) -> Tensor:
    return kernels.logsumexp(to_floating(x), list(dim), keepdim)


def safe_softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """softmax; 0 in rows where everything is -inf."""
    y = softmax(x if dtype is None else x.to(dtype), dim)
    masked = torch.eq(x, float("-inf")).all(dim, True)
    return torch.where(masked, torch.zeros_like(y), y)


MEMBERS: Members = {
    "aten::_softmax": softmax,
    "aten::_log_softmax": log_softmax,
    "aten::_softmax_backward_data": softmax_backward,
    "aten::_log_softmax_backward_data": log_softmax_backward,
    "aten::logsumexp": logsumexp,
    "aten::_safe_softmax": safe_softmax,
}
