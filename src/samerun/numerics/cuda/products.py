"""Class M on a device: `samerun_matmul` and `samerun_convolution`. How work is cut decides no bit."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int64, c_void_p
from math import prod
from typing import Any

import torch

from samerun.numerics.cuda.launch import THREADS, empty, launch, over, processors

BLOCK = 256
MOST_PARTS = 1 << 26
"""Values that the blocks of k may take where they are computed beside each other."""
FORWARD, INPUT = 0, 1
Device = torch.device


class Axis(ctypes.Structure):
    """axis_t of native/cuda/products.cu."""

    _fields_ = [("table", c_void_p), ("stride", c_int64)]


class Product(ctypes.Structure):
    """product_t of native/cuda/products.cu."""

    _fields_ = [
        *((name, c_int64) for name in ("batches", "m", "n", "k")),
        *((name, c_void_p) for name in ("a", "b", "c")),
        *((name, Axis) for name in ("a_row", "a_k", "b_k", "b_column", "c_column")),
        *((name, c_int64) for name in ("a_batch", "b_batch", "c_batch", "c_row")),
        ("bias", c_void_p),
        *((name, c_int64) for name in ("bias_batch", "bias_row", "bias_column", "a_along_k", "b_along_k", "splits")),
        ("parts", c_void_p),
    ]  # fmt: skip


class Spread(ctypes.Structure):
    """spread_t of native/cuda/products.cu."""

    _fields_ = [(name, c_int64 * 3) for name in ("in", "size", "step", "left")]


class Grid(ctypes.Structure):
    """grid_t of native/cuda/products.cu."""

    _fields_ = [
        ("start", c_int64), ("outer_stride", c_int64), *((name, c_int64 * 3) for name in ("inner", "step", "size"))
    ]  # fmt: skip


def _run(device: Device, dtype: torch.dtype, it: Product) -> None:
    """Cut the product so that the device is busy, and start it."""
    if not it.batches * it.m * it.n:
        return
    bits, large = ("32", 128) if dtype is torch.float32 else ("64", 64)
    blocks, wanted = -(-it.k // BLOCK), processors(device)

    def tiles(size: int) -> int:
        return int(it.batches * -(-it.m // size) * -(-it.n // size))

    size = large if tiles(large) * blocks >= wanted and min(it.m, it.n) > 32 else 32
    splits = max(1, min(blocks, -(-2 * wanted // tiles(size))))
    cells = it.batches * it.m * it.n
    if blocks * cells > MOST_PARTS:
        splits = 1
    parts = empty(device, blocks * cells if splits > 1 else 0, dtype)
    it.splits, it.parts = splits, parts.data_ptr() if splits > 1 else None
    if blocks:
        kernel = f"product_{'small' if size == 32 else 'large'}{bits}"
        launch(device, "products", kernel, tiles(size) * splits, (THREADS,), it)
    if splits > 1 or not blocks:
        over(device, "products", f"product_parts{bits}", cells, it)


def matmul(device: Device, is_double: int, dims: Any, a: int, b: int, c: int, bias: int | None) -> int:
    batches, m, n, k, a_batch, a_row, a_k, b_batch, b_k, b_column, c_batch, c_row, c_column, *plus = dims
    it = Product(
        batches, m, n, k, a, b, c, Axis(None, a_row), Axis(None, a_k), Axis(None, b_k), Axis(None, b_column),
        Axis(None, c_column), a_batch, b_batch, c_batch, c_row, bias, *plus, a_k == 1, b_k == 1, 1, None,
    )  # fmt: skip
    _run(device, torch.float64 if is_double else torch.float32, it)
    return 0


class _Convolution:
    """One of the three products of a convolution: as native/convolution.c, whose words it uses."""

    def __init__(self, device: Device, what: int, dtype: torch.dtype, numbers: Sequence[int]) -> None:
        self.device, self.what, self.dtype = device, what, dtype
        self.images, self.groups, self.inputs, self.outputs = numbers[:4]
        self.into, self.out, self.taps, self.stride, self.padding, self.dilation = (
            list(numbers[4 + 3 * i : 7 + 3 * i]) for i in range(6)
        )
        self.held: list[torch.Tensor] = []
        reach = [(t - 1) * d for t, d in zip(self.taps, self.dilation, strict=True)]
        if what == INPUT:
            # Tap t of output o where o * stride == i + padding - t * dilation.
            self.left = [max(0, r - p) for r, p in zip(reach, self.padding, strict=True)]
            self.start = [p + extra for p, extra in zip(self.padding, self.left, strict=True)]
            self.size = [i + s for i, s in zip(self.into, self.start, strict=True)]
        else:
            self.left, self.start = self.padding, [0, 0, 0]
            self.size = [
                max((o - 1) * s + r + 1, i + p)
                for o, s, r, i, p in zip(self.out, self.stride, reach, self.into, self.padding, strict=True)
            ]

    def padded(self, image: int, gradient: int) -> int:
        """The image (or, for the gradient of the input, the gradient spread by the stride) with its padding."""
        turned = self.what == INPUT
        source, channels = (gradient, self.images * self.outputs) if turned else (image, self.images * self.inputs)
        size, step = (self.out, self.stride) if turned else (self.into, [1, 1, 1])
        stretched = any(s != 1 and i > 1 for s, i in zip(step, size, strict=True))
        if size == self.size and not any(self.left) and not stretched:
            return source
        copy = empty(self.device, channels * prod(self.size), self.dtype)
        self.held.append(copy)
        it = Spread(*((c_int64 * 3)(*each) for each in (size, self.size, step, self.left)))
        kernel = "spread32" if self.dtype is torch.float32 else "spread64"
        over(self.device, "products", kernel, copy.numel(), c_void_p(source), c_void_p(copy.data_ptr()),
             c_int64(channels), it)  # fmt: skip
        return copy.data_ptr()

    def grid(
        self, outer: int, outer_stride: int, inner: Sequence[int], step: Sequence[int], size: Sequence[int],
        start: int = 0,
    ) -> Axis:  # fmt: skip
        """The offsets outer * outer_stride + each position of `inner` times its steps, as a table on the device."""
        table = empty(self.device, outer * prod(inner), torch.int64)
        self.held.append(table)
        it = Grid(start, outer_stride, *((c_int64 * 3)(*each) for each in (inner, step, size)))
        over(self.device, "products", "offsets", table.numel(), c_void_p(table.data_ptr()), c_int64(table.numel()), it)
        return Axis(table.data_ptr(), 0)

    def product(self, a: int, b: int, c: int, bias: int | None) -> Product:
        into, out = self.inputs // self.groups, self.outputs // self.groups
        taps, area, one = prod(self.taps), prod(self.size), [1, 1, 1]
        it = Product(batches=self.groups, a=a, b=b, c=c, bias=bias, bias_row=1)
        if self.what == FORWARD:
            pixels = prod(self.out)
            it.m, it.k, it.n, it.c_row, it.bias_batch = out, into * taps, self.images * pixels, pixels, out
            it.a_batch, it.b_batch, it.c_batch = out * into * taps, into * area, out * pixels
            it.a_row, it.a_k, it.a_along_k = Axis(None, into * taps), Axis(None, 1), 1
            it.b_k = self.grid(into, area, self.taps, self.dilation, self.size)
            it.b_column = self.grid(self.images, self.inputs * area, self.out, self.stride, self.size)
            it.c_column = self.grid(self.images, self.outputs * pixels, self.out, one, self.out)
        elif self.what == INPUT:
            pixels = prod(self.into)
            it.m, it.k, it.n, it.c_row, it.bias_batch = into, out * taps, self.images * pixels, pixels, into
            it.a_batch, it.b_batch, it.c_batch = out * into * taps, out * area, into * pixels
            it.a_row = Axis(None, taps)
            it.a_k = self.grid(out, into * taps, self.taps, one, self.taps)
            it.b_k = self.grid(out, area, self.taps, [-d for d in self.dilation], self.size)
            start = (self.start[0] * self.size[1] + self.start[1]) * self.size[2] + self.start[2]
            it.b_column = self.grid(self.images, self.outputs * area, self.into, one, self.size, start)
            it.c_column = self.grid(self.images, self.inputs * pixels, self.into, one, self.into)
        else:
            pixels = prod(self.out)
            it.m, it.k, it.n, it.c_row = out, self.images * pixels, into * taps, into * taps
            it.a_batch, it.b_batch, it.c_batch = out * pixels, into * area, out * into * taps
            it.a_row, it.a_along_k, it.b_along_k = Axis(None, pixels), 1, 1
            it.a_k = self.grid(self.images, self.outputs * pixels, self.out, one, self.out)
            it.b_k = self.grid(self.images, self.inputs * area, self.out, self.stride, self.size)
            it.b_column = self.grid(into, area, self.taps, self.dilation, self.size)
            it.c_column = Axis(None, 1)
        return it


def convolution(
    device: Device, what: int, is_double: int, numbers: Any, image: int | None, weight: int | None,
    gradient: int | None, bias: int | None, result: int,
) -> int:  # fmt: skip
    dtype = torch.float64 if is_double else torch.float32
    it = _Convolution(device, what, dtype, list(numbers))
    wide = it.padded(image or 0, gradient or 0)
    left = weight if what in (FORWARD, INPUT) else gradient
    _run(device, dtype, it.product(left or 0, wide, result, bias))
    return 0
