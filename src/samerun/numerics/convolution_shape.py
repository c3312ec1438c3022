"""The shape of a convolution, as C, CUDA and Python share it."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Structure, c_int64


class ConvolutionShape(Structure):
    """`samerun_convolution_shape` of native/convolution_shape.h, field by field: 22 integers of 64 bits.

    `inputs` and `outputs` are all channels; the other fields are of depth, height and width.
    """

    _fields_ = [
        *((name, c_int64) for name in ("images", "groups", "inputs", "outputs")),
        *((name, c_int64 * 3) for name in ("in_size", "out_size", "taps", "stride", "padding", "dilation")),
    ]


def make_convolution_shape(
    image_shape: Sequence[int], weight_shape: Sequence[int], gradient_shape: Sequence[int], stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], groups: int,
) -> ConvolutionShape:  # fmt: skip
    """Of the shapes of tensors [n, c, *in], [c', c / groups, *taps] and [n, c', *out], of one to three dimensions."""
    sizes = (_pad_to_three_dims(each, 1) for each in (image_shape[2:], gradient_shape[2:], weight_shape[2:], stride))
    settings = (_pad_to_three_dims(padding, 0), _pad_to_three_dims(dilation, 1))
    return ConvolutionShape(image_shape[0], groups, image_shape[1], weight_shape[0], *sizes, *settings)


def _pad_to_three_dims(values: Sequence[int], fill: int) -> tuple[int, ...]:
    return (*[fill] * (3 - len(values)), *values)
