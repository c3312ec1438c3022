"""Class M: convolutions in one to three dimensions, plain and transposed, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from samerun.numerics.aten_handlers.declare import Members, NoPortableKernel
from samerun.numerics.kernels import sums
from samerun.numerics.kernels.linear_algebra import (
    FORWARD,
    GRADIENT_OF_INPUT,
    GRADIENT_OF_WEIGHT,
    convolution_output_size,
    convolve,
)


def _expand_per_dimension(values: Sequence[int], num_dims: int) -> list[int]:
    return list(values) * num_dims if len(values) == 1 else list(values)


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    _require_floating_input(x)
    dims = x.dim() - 2
    stride, padding, dilation = (
        _expand_per_dimension(stride, dims),
        _expand_per_dimension(padding, dims),
        _expand_per_dimension(dilation, dims),
    )
    more = _expand_per_dimension(output_padding, dims)
    _require_fitting_weight_shape(x, weight, transposed, groups)
    if min(*stride, *dilation) <= 0 or min(*padding, *more) < 0:
        raise RuntimeError("convolution: a stride, dilation, padding or output padding is negative or zero")
    if any(m >= max(s, d) for m, s, d in zip(more, stride, dilation, strict=True)) and transposed:
        raise RuntimeError("convolution: output padding must be smaller than either stride or dilation")
    size, taps = list(x.shape[2:]), list(weight.shape[2:])
    if not transposed:
        out = convolution_output_size(size, taps, stride, padding, dilation)
        _require_positive_output_size(out, size, taps)
        shape = [x.shape[0], weight.shape[0], *out]
        return convolve(FORWARD, x, weight, shape, bias, stride, padding, dilation, groups)
    out = [
        (i - 1) * s - 2 * p + d * (t - 1) + m + 1
        for i, s, p, d, t, m in zip(size, stride, padding, dilation, taps, more, strict=True)
    ]
    _require_positive_output_size(out, size, taps)
    shape = [x.shape[0], weight.shape[1] * groups, *out]
    return convolve(GRADIENT_OF_INPUT, shape, weight, x, bias, stride, padding, dilation, groups)


def convolution_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    dims = x.dim() - 2
    setting = (
        _expand_per_dimension(stride, dims),
        _expand_per_dimension(padding, dims),
        _expand_per_dimension(dilation, dims),
        groups,
    )
    of_input = of_weight = of_bias = None
    if output_mask[0]:
        if transposed:
            of_input = convolve(FORWARD, grad, weight, list(x.shape), None, *setting)
        else:
            of_input = convolve(GRADIENT_OF_INPUT, list(x.shape), weight, grad, None, *setting)
    if output_mask[1]:
        image, gradient = (grad, x) if transposed else (x, grad)
        of_weight = convolve(GRADIENT_OF_WEIGHT, image, list(weight.shape), gradient, None, *setting)
    if output_mask[2]:
        of_bias = sums.sum(grad, [0, *range(2, grad.dim())])
    return of_input, of_weight, of_bias


def _require_floating_input(x: Tensor) -> None:
    if not x.is_floating_point():
        raise NoPortableKernel(f"{x.dtype}.", "Convert it to float32 first: tensor.float().")


def _require_fitting_weight_shape(x: Tensor, weight: Tensor, transposed: bool, groups: int) -> None:
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")
    expected = weight.shape[0] if transposed else weight.shape[1] * groups
    if x.dtype is not weight.dtype:
        raise RuntimeError(f"convolution: expected one type, got {x.dtype} and {weight.dtype}")
    if x.dim() != weight.dim() or x.shape[1] != expected or weight.shape[0] % groups:
        raise RuntimeError(
            f"convolution: weight of size {list(weight.shape)} with groups={groups} does not fit input {list(x.shape)}"
        )


def _require_positive_output_size(out_size: list[int], in_size: list[int], kernel_size: list[int]) -> None:
    if min(out_size) <= 0:
        raise RuntimeError(
            f"convolution: input of size {in_size} is too small for {kernel_size} taps; the output would be {out_size}"
        )


MEMBERS: Members = {
    "aten::convolution": convolution,
    "aten::convolution_backward": convolution_backward,
    "aten::_convolution": lambda *args: convolution(*args[:9]),
}
