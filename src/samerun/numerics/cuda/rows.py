"""The softmax family and the normalisations on a device; arguments as in native/operators.c and native/norms.c."""

from __future__ import annotations

import array
from ctypes import c_float, c_int, c_int64, c_void_p

import torch

from samerun.numerics.cuda import sums
from samerun.numerics.cuda.elementwise import launch_fill
from samerun.numerics.cuda.launch import THREADS, Address, allocate, launch, launch_per_value
from samerun.numerics.status import DONE

NAMES = ("softmax", "log_softmax", "logsumexp", "softmax_backward", "log_softmax_backward")
Device = torch.device


def _choose_threads_per_row(n: int) -> tuple[int]:
    """Of a block that takes a row of n values: no warp without work."""
    return (sums.WARP * max(1, min(THREADS // sums.WARP, n // 128)),)


def launch_softmax_family_rows(
    device: Device, function_number: int, x: Address, grad: Address, out: Address, count: int, n: int
) -> None:
    pointers = map(c_void_p, (x, grad, out))
    launch(device, "softmax", NAMES[function_number], count, _choose_threads_per_row(n), *pointers, c_int64(n))


def launch_normalize_rows(
    device: Device,
    rms: int,
    eps: float,
    x: Address,
    weight: Address,
    bias: Address,
    out: Address,
    mean: Address,
    rstd: Address,
    count: int,
    n: int,
    groups: int,
    inner: int,
) -> None:
    pointers = map(c_void_p, (x, weight, bias, out, mean, rstd))
    sizes = map(c_int64, (n, groups, inner))
    launch(
        device,
        "norms",
        "normalize_rows",
        count,
        _choose_threads_per_row(n),
        c_int(rms),
        c_float(eps),
        *pointers,
        *sizes,
    )


def launch_normalize_rows_backward(
    device: Device,
    rms: int,
    x: Address,
    grad: Address,
    weight: Address,
    mean: Address,
    rstd: Address,
    out: Address,
    terms: Address,
    count: int,
    n: int,
    groups: int,
    inner: int,
) -> None:
    pointers = map(c_void_p, (x, grad, weight, mean, rstd, out, terms))
    sizes = map(c_int64, (n, groups, inner))
    launch(device, "norms", "normalize_rows_backward", count, _choose_threads_per_row(n), c_int(rms), *pointers, *sizes)


def launch_normalize_rows_backward_with_weight(
    device: Device,
    rms: int,
    x: Address,
    grad: Address,
    weight: Address,
    mean: Address,
    rstd: Address,
    out: Address,
    weight_grad: Address,
    bias_grad: Address,
    count: int,
    n: int,
) -> int:
    if count == 0 or n == 0:
        for each in (weight_grad, bias_grad):
            launch_fill(device, torch.float32, each, 0.0, n)
        return DONE
    terms = allocate(device, count * n, torch.float32)
    launch_normalize_rows_backward(device, rms, x, grad, weight, mean, rstd, out, terms.data_ptr(), count, n, 1, 1)
    layout = array.array("q", (count, n, n, 1))
    sizes = layout.buffer_info()[0]
    for source, to in ((terms.data_ptr(), weight_grad), (grad, bias_grad)):
        sums.sum32(device, 0, source, 0, to, 2, sizes, sizes + 16, 1)
    return DONE


def launch_normalize_channels(
    device: Device,
    x: Address,
    weight: Address,
    bias: Address,
    mean: Address,
    rstd: Address,
    out: Address,
    images: int,
    count: int,
    inner: int,
) -> None:
    n = images * count * inner
    pointers = map(c_void_p, (x, weight, bias, mean, rstd, out))
    launch_per_value(device, "norms", "normalize_channels", n, *pointers, *map(c_int64, (n, count, inner)))


def launch_normalize_channels_backward(
    device: Device,
    training: int,
    x: Address,
    grad: Address,
    weight: Address,
    mean: Address,
    rstd: Address,
    out: Address,
    weight_grad: Address,
    bias_grad: Address,
    images: int,
    count: int,
    inner: int,
) -> int:
    blocks = -(-images * inner // sums.BLOCK)
    kinds = 4 if training else 2
    parts, found = (allocate(device, n, torch.float32) for n in (4 * count * blocks, 4 * count))
    given = (c_int(training), *map(c_void_p, (x, grad, weight, mean, rstd)))
    sizes = tuple(map(c_int64, (images, count, inner)))
    warps = -(-count * blocks * sums.WARP // THREADS)
    launch(device, "norms", "channel_gradient_sums", warps, (THREADS,), *given, c_void_p(parts.data_ptr()), *sizes,
           c_int64(blocks))  # fmt: skip
    # The sums are those of g, g*y, h, h*y; the first two are results.
    places = (bias_grad, weight_grad, found.data_ptr() + 8 * count, found.data_ptr() + 12 * count)
    for kind in range(kinds):
        sums.reduce_blocks(
            device, "32", False, parts.data_ptr() + 4 * kind * count * blocks, places[kind], blocks, count
        )
    launch_per_value(device, "norms", "channel_input_gradient", images * count * inner, *given,
         c_void_p(found.data_ptr()), c_void_p(out), *sizes)  # fmt: skip
    return DONE
