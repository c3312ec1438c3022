"""Class R, activations and random numbers on a device: each thread makes values of its own."""

from __future__ import annotations

from ctypes import c_float, c_int64, c_uint64, c_void_p

import torch

from samerun.numerics.cuda.launch import Address, launch_grid_stride

FUNCTIONS: tuple[str, ...] = (
    *("exp", "exp2", "expm1", "sinh", "cosh", "tanh", "asin", "acos", "atan", "erf", "erfc", "rsqrt", "reciprocal"),
    *("cbrt", "sigmoid", "log", "log2", "log10", "log1p", "asinh", "acosh", "atanh", "sin", "cos", "tan"),
)
PAIRS = ("pow", "atan2", "hypot")
ACTIVATIONS = ("gelu", "gelu_tanh", "silu", "gelu_backward", "gelu_tanh_backward", "silu_backward")
Device = torch.device


def launch_unary_function(device: Device, function_index: int, x: Address, out: Address, n: int) -> None:
    launch_grid_stride(
        device, "elementwise", f"map_{FUNCTIONS[function_index]}", n, c_void_p(x), c_void_p(out), c_int64(n)
    )


def launch_binary_function(device: Device, function_index: int, x: Address, y: Address, out: Address, n: int) -> None:
    launch_grid_stride(
        device, "elementwise", f"map_{PAIRS[function_index]}", n, c_void_p(x), c_void_p(y), c_void_p(out), c_int64(n)
    )


def launch_activation(device: Device, function_index: int, x: Address, grad: Address, out: Address, n: int) -> None:
    name = f"activation_{ACTIVATIONS[function_index]}"
    launch_grid_stride(device, "elementwise", name, n, c_void_p(x), c_void_p(grad), c_void_p(out), c_int64(n))


def launch_sqrt(device: Device, is_double: bool, x: Address, out: Address, n: int) -> None:
    launch_grid_stride(
        device,
        "elementwise",
        "square_roots64" if is_double else "square_roots32",
        n,
        c_void_p(x),
        c_void_p(out),
        c_int64(n),
    )


def launch_random_floats(device: Device, is_normal: bool, seed: int, draw_number: int, out: Address, n: int) -> None:
    name = "random_normal" if is_normal else "random_uniform"
    launch_grid_stride(
        device, "random", name, (n + 3) // 4, c_uint64(seed), c_uint64(draw_number), c_void_p(out), c_int64(n)
    )


def launch_randint(device: Device, seed: int, draw_number: int, low: int, span: int, out: Address, n: int) -> None:
    given = (c_uint64(seed), c_uint64(draw_number), c_int64(low), c_uint64(span))
    launch_grid_stride(device, "random", "randint", n, *given, c_void_p(out), c_int64(n))


def launch_random_words64(device: Device, seed: int, draw_number: int, out: Address, n: int) -> None:
    launch_grid_stride(
        device, "random", "random_words64", n, c_uint64(seed), c_uint64(draw_number), c_void_p(out), c_int64(n)
    )


def launch_random_block_words(
    device: Device, seed: int, draw_number: int, block_indices: Address, out: Address, n: int
) -> None:
    given = (c_uint64(seed), c_uint64(draw_number), c_void_p(block_indices), c_void_p(out))
    launch_grid_stride(device, "random", "random_block_words", n, *given, c_int64(n))


def launch_fill(device: Device, dtype: torch.dtype, out: Address, value: float, n: int) -> None:
    """out[:n] = value, float32 or float64."""
    if dtype is torch.float32:
        launch_grid_stride(device, "sums", "fill32", n, c_void_p(out), c_float(value), c_int64(n))
    else:
        from ctypes import c_double

        launch_grid_stride(device, "sums", "fill64", n, c_void_p(out), c_double(value), c_int64(n))
