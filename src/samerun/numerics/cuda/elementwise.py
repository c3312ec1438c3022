"""Class R, activations and random numbers on a device: each thread makes values of its own."""

from __future__ import annotations

from ctypes import c_float, c_int64, c_uint64, c_void_p

import torch

from samerun.numerics.cuda.launch import Address, launch_per_value

FUNCTIONS: tuple[str, ...] = (
    *("exp", "exp2", "expm1", "sinh", "cosh", "tanh", "asin", "acos", "atan", "erf", "erfc", "rsqrt", "reciprocal"),
    *("cbrt", "sigmoid", "log", "log2", "log10", "log1p", "asinh", "acosh", "atanh", "sin", "cos", "tan"),
)
PAIRS = ("pow", "atan2", "hypot")
ACTIVATIONS = ("gelu", "gelu_tanh", "silu", "gelu_backward", "gelu_tanh_backward", "silu_backward")
Device = torch.device


def launch_function(device: Device, function_number: int, x: Address, y: Address, n: int) -> None:
    launch_per_value(
        device, "elementwise", f"map_{FUNCTIONS[function_number]}", n, c_void_p(x), c_void_p(y), c_int64(n)
    )


def launch_pair_function(device: Device, function_number: int, x: Address, y: Address, out: Address, n: int) -> None:
    launch_per_value(
        device, "elementwise", f"map_{PAIRS[function_number]}", n, c_void_p(x), c_void_p(y), c_void_p(out), c_int64(n)
    )


def launch_activation(device: Device, function_number: int, x: Address, grad: Address, out: Address, n: int) -> None:
    name = f"activation_{ACTIVATIONS[function_number]}"
    launch_per_value(device, "elementwise", name, n, c_void_p(x), c_void_p(grad), c_void_p(out), c_int64(n))


def launch_square_roots(device: Device, is_double: int, x: Address, out: Address, n: int) -> None:
    launch_per_value(
        device,
        "elementwise",
        "square_roots64" if is_double else "square_roots32",
        n,
        c_void_p(x),
        c_void_p(out),
        c_int64(n),
    )


def launch_random_floats(device: Device, normal: int, seed: int, position: int, out: Address, n: int) -> None:
    name = "random_normal" if normal else "random_uniform"
    launch_per_value(
        device, "random", name, (n + 3) // 4, c_uint64(seed), c_uint64(position), c_void_p(out), c_int64(n)
    )


def launch_randint(device: Device, seed: int, position: int, low: int, range: int, out: Address, n: int) -> None:
    given = (c_uint64(seed), c_uint64(position), c_int64(low), c_uint64(range))
    launch_per_value(device, "random", "randint", n, *given, c_void_p(out), c_int64(n))


def launch_random_words64(device: Device, seed: int, position: int, out: Address, n: int) -> None:
    launch_per_value(
        device, "random", "random_words64", n, c_uint64(seed), c_uint64(position), c_void_p(out), c_int64(n)
    )


def launch_random_block_words(device: Device, seed: int, position: int, blocks: Address, out: Address, n: int) -> None:
    given = (c_uint64(seed), c_uint64(position), c_void_p(blocks), c_void_p(out))
    launch_per_value(device, "random", "random_block_words", n, *given, c_int64(n))


def launch_fill(device: Device, dtype: torch.dtype, out: Address, value: float, n: int) -> None:
    """out[:n] = value, float32 or float64."""
    if dtype is torch.float32:
        launch_per_value(device, "sums", "fill32", n, c_void_p(out), c_float(value), c_int64(n))
    else:
        from ctypes import c_double

        launch_per_value(device, "sums", "fill64", n, c_void_p(out), c_double(value), c_int64(n))
