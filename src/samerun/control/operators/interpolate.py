"""The gradients of interpolate: linear, bilinear, bicubic and trilinear, smoothed (antialias) or not."""

from __future__ import annotations

from torch import Tensor

from samerun.control.operators.declare import Kernel, Operator, widened
from samerun.control.operators.interpolation_taps import taps
from samerun.control.operators.windows import gathered


def gradient(
    mode: str, grad_output: Tensor, input_size: list[int], align_corners: bool, factors: tuple[float | None, ...]
) -> Tensor:
    """factors: for each dimension, from the last, the scale that the user gave, or None."""
    out = widened(grad_output)
    for dim, factor in zip((-1, -2, -3), factors, strict=False):
        table = taps(mode, input_size[dim], out.shape[dim], align_corners, factor, out.dtype, out.device)
        out = gathered(out, dim, table)
    return out.to(grad_output.dtype)


def linear(
    grad_output: Tensor, output_size: list[int], input_size: list[int], align_corners: bool, w: float | None = None
) -> Tensor:
    return gradient("linear", grad_output, input_size, align_corners, (w,))


def bilinear(
    grad_output: Tensor, output_size: list[int], input_size: list[int], align_corners: bool,
    h: float | None = None, w: float | None = None,
) -> Tensor:  # fmt: skip
    return gradient("linear", grad_output, input_size, align_corners, (w, h))


def bicubic(
    grad_output: Tensor, output_size: list[int], input_size: list[int], align_corners: bool,
    h: float | None = None, w: float | None = None,
) -> Tensor:  # fmt: skip
    return gradient("cubic", grad_output, input_size, align_corners, (w, h))


def trilinear(
    grad_output: Tensor, output_size: list[int], input_size: list[int], align_corners: bool,
    d: float | None = None, h: float | None = None, w: float | None = None,
) -> Tensor:  # fmt: skip
    return gradient("linear", grad_output, input_size, align_corners, (w, h, d))


def smooth_bilinear(
    grad_output: Tensor, output_size: list[int], input_size: list[int], align_corners: bool,
    h: float | None = None, w: float | None = None,
) -> Tensor:  # fmt: skip
    return gradient("linear smooth", grad_output, input_size, align_corners, (w, h))


def smooth_bicubic(
    grad_output: Tensor, output_size: list[int], input_size: list[int], align_corners: bool,
    h: float | None = None, w: float | None = None,
) -> Tensor:  # fmt: skip
    return gradient("cubic smooth", grad_output, input_size, align_corners, (w, h))


def _floats(grad_output: Tensor, *others: object, **named: object) -> bool:
    return grad_output.is_floating_point()


def _kernel(compute: object, name: str) -> Kernel:
    return Kernel(compute, (name, f"{name}.grad_input"), applies=_floats)  # type: ignore[arg-type]


OPERATOR = Operator(
    "interpolate",
    ("torch.nn.functional.interpolate", "linear", "bilinear", "bicubic", "trilinear"),
    "The gradients of interpolate: linear, bilinear, bicubic and trilinear, smoothed (antialias) or not.",
    "One dimension after the other, each input gathers the outputs that read it, times their weights, in ascending"
    " order.",
    "For each dimension a gather, a product and a sum for each output that reads an input (about twice the factor"
    " for linear, four times for cubic); tables of weights are kept for the last sizes.",
    (
        _kernel(linear, "upsample_linear1d_backward"),
        _kernel(bilinear, "upsample_bilinear2d_backward"),
        _kernel(smooth_bilinear, "_upsample_bilinear2d_aa_backward"),
        _kernel(bicubic, "upsample_bicubic2d_backward"),
        _kernel(smooth_bicubic, "_upsample_bicubic2d_aa_backward"),
        _kernel(trilinear, "upsample_trilinear3d_backward"),
    ),
)
