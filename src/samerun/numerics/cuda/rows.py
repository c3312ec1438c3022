"""The softmax family and the normalisations on a device; arguments as in native/operators.c and native/norms.c."""

from __future__ import annotations

import array
from ctypes import c_float, c_int, c_int64, c_void_p

import torch

from samerun.numerics.cuda import sums
from samerun.numerics.cuda.elementwise import launch_fill
from samerun.numerics.cuda.launch import THREADS, Address, allocate_uninitialized, launch_grid_stride, launch_kernel
from samerun.numerics.status import DONE

NAMES = ("softmax", "log_softmax", "logsumexp", "softmax_backward", "log_softmax_backward")
Device = torch.device


def _choose_block_shape_for_row(row_length: int) -> tuple[int]:
    """Of a block that takes a row of row_length values: no warp without work."""
    return (sums.WARP * max(1, min(THREADS // sums.WARP, row_length // 128)),)


def launch_softmax_family_rows(
    device: Device,
    function_index: int,
    input_or_output: Address,
    grad_output: Address,
    result: Address,
    num_rows: int,
    row_length: int,
) -> None:
    pointers = map(c_void_p, (input_or_output, grad_output, result))
    launch_kernel(
        device,
        "softmax",
        NAMES[function_index],
        num_rows,
        _choose_block_shape_for_row(row_length),
        *pointers,
        c_int64(row_length),
    )


def launch_normalize_rows(
    device: Device,
    is_rms: bool,
    eps: float,
    x: Address,
    weight_or_null: Address,
    bias_or_null: Address,
    out: Address,
    mean: Address,
    rstd: Address,
    num_rows: int,
    row_length: int,
    weight_row_period: int,
    values_per_weight: int,
) -> None:
    pointers = map(c_void_p, (x, weight_or_null, bias_or_null, out, mean, rstd))
    sizes = map(c_int64, (row_length, weight_row_period, values_per_weight))
    launch_kernel(
        device,
        "norms",
        "normalize_rows",
        num_rows,
        _choose_block_shape_for_row(row_length),
        c_int(is_rms),
        c_float(eps),
        *pointers,
        *sizes,
    )


def launch_normalize_rows_backward(
    device: Device,
    is_rms: bool,
    x: Address,
    grad_output: Address,
    weight_or_null: Address,
    mean: Address,
    rstd: Address,
    grad_input: Address,
    weight_grad_terms: Address,
    num_rows: int,
    row_length: int,
    weight_row_period: int,
    values_per_weight: int,
) -> None:
    pointers = map(c_void_p, (x, grad_output, weight_or_null, mean, rstd, grad_input, weight_grad_terms))
    sizes = map(c_int64, (row_length, weight_row_period, values_per_weight))
    launch_kernel(
        device,
        "norms",
        "normalize_rows_backward",
        num_rows,
        _choose_block_shape_for_row(row_length),
        c_int(is_rms),
        *pointers,
        *sizes,
    )


def launch_normalize_rows_backward_with_weight(
    device: Device,
    is_rms: bool,
    x: Address,
    grad_output: Address,
    weight_or_null: Address,
    mean: Address,
    rstd: Address,
    grad_input: Address,
    weight_grad: Address,
    bias_grad: Address,
    num_rows: int,
    row_length: int,
) -> int:
    if num_rows == 0 or row_length == 0:
        for each in (weight_grad, bias_grad):
            launch_fill(device, torch.float32, each, 0.0, row_length)
        return DONE
    terms = allocate_uninitialized(device, num_rows * row_length, torch.float32)
    launch_normalize_rows_backward(
        device,
        is_rms,
        x,
        grad_output,
        weight_or_null,
        mean,
        rstd,
        grad_input,
        terms.data_ptr(),
        num_rows,
        row_length,
        1,
        1,
    )
    layout = array.array("q", (num_rows, row_length, row_length, 1))
    sizes = layout.buffer_info()[0]
    for source, to in ((terms.data_ptr(), weight_grad), (grad_output, bias_grad)):
        sums.sum32(device, 0, source, 0, to, 2, sizes, sizes + 16, 1)
    return DONE


def launch_normalize_channels(
    device: Device,
    x: Address,
    weight_or_null: Address,
    bias_or_null: Address,
    mean: Address,
    rstd: Address,
    out: Address,
    images: int,
    num_channels: int,
    inner: int,
) -> None:
    n = images * num_channels * inner
    pointers = map(c_void_p, (x, weight_or_null, bias_or_null, mean, rstd, out))
    launch_grid_stride(device, "norms", "normalize_channels", n, *pointers, *map(c_int64, (n, num_channels, inner)))


def launch_normalize_channels_backward(
    device: Device,
    training: int,
    x: Address,
    grad_output: Address,
    weight_or_null: Address,
    mean: Address,
    rstd: Address,
    grad_input: Address,
    weight_grad: Address,
    bias_grad: Address,
    images: int,
    num_channels: int,
    inner: int,
) -> int:
    blocks = -(-images * inner // sums.BLOCK)
    kinds = 4 if training else 2
    parts, found = (
        allocate_uninitialized(device, n, torch.float32) for n in (4 * num_channels * blocks, 4 * num_channels)
    )
    given = (c_int(training), *map(c_void_p, (x, grad_output, weight_or_null, mean, rstd)))
    sizes = tuple(map(c_int64, (images, num_channels, inner)))
    warps = -(-num_channels * blocks * sums.WARP // THREADS)
    launch_kernel(device, "norms", "channel_gradient_sums", warps, (THREADS,), *given, c_void_p(parts.data_ptr()),
           *sizes, c_int64(blocks))  # fmt: skip
    # The sums are those of g, g*y, h, h*y; the first two are results.
    places = (bias_grad, weight_grad, found.data_ptr() + 8 * num_channels, found.data_ptr() + 12 * num_channels)
    for kind in range(kinds):
        sums.launch_block_tree_reduction(
            device, "32", False, parts.data_ptr() + 4 * kind * num_channels * blocks, places[kind], blocks, num_channels
        )
    launch_grid_stride(device, "norms", "channel_input_gradient", images * num_channels * inner, *given,
         c_void_p(found.data_ptr()), c_void_p(grad_input), *sizes)  # fmt: skip
    return DONE
