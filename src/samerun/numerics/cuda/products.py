"""Class M on a device: `samerun_matmul` and `samerun_convolution`. How work is cut decides no bit."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int64, c_void_p
from math import prod
from typing import Any

import torch

from samerun.numerics.convolution_shape import ConvolutionShape
from samerun.numerics.cuda.launch import (
    THREADS,
    Address,
    allocate_uninitialized,
    count_multiprocessors,
    launch_grid_stride,
    launch_kernel,
)
from samerun.numerics.status import DONE

BLOCK = 256
MOST_PARTS = 1 << 26
"""Values that the blocks of k may take where they are computed beside each other."""
FORWARD, GRADIENT_OF_INPUT = 0, 1
Device = torch.device


class AxisStruct(ctypes.Structure):
    """axis_offsets_t of native/cuda/products.cu."""

    _fields_ = [("table", c_void_p), ("stride", c_int64)]


class ProductStruct(ctypes.Structure):
    """gemm_t of native/cuda/products.cu."""

    _fields_ = [
        *((name, c_int64) for name in ("batches", "m", "n", "k")),
        *((name, c_void_p) for name in ("a", "b", "c")),
        *((name, AxisStruct) for name in ("a_row", "a_k", "b_k", "b_column", "c_column")),
        *((name, c_int64) for name in ("a_batch", "b_batch", "c_batch", "c_row")),
        ("bias", c_void_p),
        *((name, c_int64) for name in ("bias_batch", "bias_row", "bias_column", "a_along_k", "b_along_k", "splits")),
        ("parts", c_void_p),
    ]  # fmt: skip


class PaddingStruct(ctypes.Structure):
    """padding_t of native/cuda/products.cu."""

    _fields_ = [(name, c_int64 * 3) for name in ("in", "size", "step", "left")]


class GridStruct(ctypes.Structure):
    """grid_t of native/cuda/products.cu."""

    _fields_ = [
        ("start", c_int64), ("outer_stride", c_int64), *((name, c_int64 * 3) for name in ("inner", "step", "size"))
    ]  # fmt: skip


def _launch_tiled_gemm(device: Device, dtype: torch.dtype, product: ProductStruct) -> None:
    """Cut the product so that the device is busy, and start it."""
    if not product.batches * product.m * product.n:
        return
    bits, large = ("32", 128) if dtype is torch.float32 else ("64", 64)
    blocks, wanted = -(-product.k // BLOCK), count_multiprocessors(device)

    def count_tiles(tile_size: int) -> int:
        return int(product.batches * -(-product.m // tile_size) * -(-product.n // tile_size))

    size = large if count_tiles(large) * blocks >= wanted and min(product.m, product.n) > 32 else 32
    splits = max(1, min(blocks, -(-2 * wanted // count_tiles(size))))
    cells = product.batches * product.m * product.n
    if blocks * cells > MOST_PARTS:
        splits = 1
    parts = allocate_uninitialized(device, blocks * cells if splits > 1 else 0, dtype)
    product.splits, product.parts = splits, parts.data_ptr() if splits > 1 else None
    if blocks:
        kernel = f"gemm_{'small' if size == 32 else 'large'}{bits}"
        launch_kernel(device, "products", kernel, count_tiles(size) * splits, (THREADS,), product)
    if splits > 1 or not blocks:
        launch_grid_stride(device, "products", f"sum_split_k_parts{bits}", cells, product)


def launch_matmul(
    device: Device,
    is_double: bool,
    packed_sizes_and_strides: Any,
    a: Address,
    b: Address,
    c: Address,
    bias: Address | None,
) -> int:
    batches, m, n, k, a_batch, a_row, a_k, b_batch, b_k, b_column, c_batch, c_row, c_column, *plus = (
        packed_sizes_and_strides
    )
    product = ProductStruct(
        batches, m, n, k, a, b, c, AxisStruct(
            None, a_row
        ), AxisStruct(None, a_k), AxisStruct(None, b_k), AxisStruct(None, b_column),
        AxisStruct(None, c_column), a_batch, b_batch, c_batch, c_row, bias, *plus, a_k == 1, b_k == 1, 1, None,
    )  # fmt: skip
    _launch_tiled_gemm(device, torch.float64 if is_double else torch.float32, product)
    return DONE


class _ConvolutionGemm:
    """One of the three products of a convolution: as native/convolution.c, whose words it uses."""

    def __init__(self, device: Device, direction: int, dtype: torch.dtype, shape: ConvolutionShape) -> None:
        self.device, self.direction, self.dtype = device, direction, dtype
        self.images, self.groups, self.inputs, self.outputs = shape.images, shape.groups, shape.inputs, shape.outputs
        self.into, self.out, self.taps = list(shape.in_size), list(shape.out_size), list(shape.taps)
        self.stride, self.padding, self.dilation = list(shape.stride), list(shape.padding), list(shape.dilation)
        self.buffers: list[torch.Tensor] = []
        reach = [(t - 1) * d for t, d in zip(self.taps, self.dilation, strict=True)]
        if direction == GRADIENT_OF_INPUT:
            # Tap t of output o where o * stride == i + padding - t * dilation.
            self.pad_before = [max(0, r - p) for r, p in zip(reach, self.padding, strict=True)]
            self.start = [p + extra for p, extra in zip(self.padding, self.pad_before, strict=True)]
            self.size = [i + s for i, s in zip(self.into, self.start, strict=True)]
        else:
            self.pad_before, self.start = self.padding, [0, 0, 0]
            self.size = [
                max((o - 1) * s + r + 1, i + p)
                for o, s, r, i, p in zip(self.out, self.stride, reach, self.into, self.padding, strict=True)
            ]

    def copy_padded_operand_if_needed(self, image_address: Address, gradient_address: Address) -> int:
        """The address of a padded copy of the image (GRADIENT_OF_INPUT: of the gradient, spread by the stride)."""
        turned = self.direction == GRADIENT_OF_INPUT
        source, channels = (
            (gradient_address, self.images * self.outputs) if turned else (image_address, self.images * self.inputs)
        )
        size, step = (self.out, self.stride) if turned else (self.into, [1, 1, 1])
        stretched = any(s != 1 and i > 1 for s, i in zip(step, size, strict=True))
        if size == self.size and not any(self.pad_before) and not stretched:
            return source
        copy = allocate_uninitialized(self.device, channels * prod(self.size), self.dtype)
        self.buffers.append(copy)
        spread = PaddingStruct(*((c_int64 * 3)(*each) for each in (size, self.size, step, self.pad_before)))
        kernel = "pad_image32" if self.dtype is torch.float32 else "pad_image64"
        launch_grid_stride(self.device, "products", kernel, copy.numel(), c_void_p(source), c_void_p(copy.data_ptr()),
             c_int64(channels), spread)  # fmt: skip
        return copy.data_ptr()

    def build_offset_table(
        self, outer: int, outer_stride: int, inner: Sequence[int], step: Sequence[int], size: Sequence[int],
        start: int = 0,
    ) -> AxisStruct:  # fmt: skip
        """The offsets outer * outer_stride + each position of `inner` times its steps, as a table on the device."""
        table = allocate_uninitialized(self.device, outer * prod(inner), torch.int64)
        self.buffers.append(table)
        grid = GridStruct(start, outer_stride, *((c_int64 * 3)(*each) for each in (inner, step, size)))
        launch_grid_stride(
            self.device,
            "products",
            "fill_grid_offsets",
            table.numel(),
            c_void_p(table.data_ptr()),
            c_int64(table.numel()),
            grid,
        )
        return AxisStruct(table.data_ptr(), 0)

    def build_implicit_gemm(self, a: Address, b: Address, c: Address, bias: Address | None) -> ProductStruct:
        into, out = self.inputs // self.groups, self.outputs // self.groups
        taps, area, one = prod(self.taps), prod(self.size), [1, 1, 1]
        product = ProductStruct(batches=self.groups, a=a, b=b, c=c, bias=bias, bias_row=1)
        if self.direction == FORWARD:
            pixels = prod(self.out)
            product.m, product.k, product.n = out, into * taps, self.images * pixels
            product.c_row, product.bias_batch = pixels, out
            product.a_batch, product.b_batch, product.c_batch = out * into * taps, into * area, out * pixels
            product.a_row, product.a_k, product.a_along_k = AxisStruct(None, into * taps), AxisStruct(None, 1), 1
            product.b_k = self.build_offset_table(into, area, self.taps, self.dilation, self.size)
            product.b_column = self.build_offset_table(
                self.images, self.inputs * area, self.out, self.stride, self.size
            )
            product.c_column = self.build_offset_table(self.images, self.outputs * pixels, self.out, one, self.out)
        elif self.direction == GRADIENT_OF_INPUT:
            pixels = prod(self.into)
            product.m, product.k, product.n = into, out * taps, self.images * pixels
            product.c_row, product.bias_batch = pixels, into
            product.a_batch, product.b_batch, product.c_batch = out * into * taps, out * area, into * pixels
            product.a_row = AxisStruct(None, taps)
            product.a_k = self.build_offset_table(out, into * taps, self.taps, one, self.taps)
            product.b_k = self.build_offset_table(out, area, self.taps, [-d for d in self.dilation], self.size)
            start = (self.start[0] * self.size[1] + self.start[1]) * self.size[2] + self.start[2]
            product.b_column = self.build_offset_table(
                self.images, self.outputs * area, self.into, one, self.size, start
            )
            product.c_column = self.build_offset_table(self.images, self.inputs * pixels, self.into, one, self.into)
        else:
            pixels = prod(self.out)
            product.m, product.k, product.n, product.c_row = out, self.images * pixels, into * taps, into * taps
            product.a_batch, product.b_batch, product.c_batch = out * pixels, into * area, out * into * taps
            product.a_row, product.a_along_k, product.b_along_k = AxisStruct(None, pixels), 1, 1
            product.a_k = self.build_offset_table(self.images, self.outputs * pixels, self.out, one, self.out)
            product.b_k = self.build_offset_table(self.images, self.inputs * area, self.out, self.stride, self.size)
            product.b_column = self.build_offset_table(into, area, self.taps, self.dilation, self.size)
            product.c_column = AxisStruct(None, 1)
        return product


def launch_convolution(
    device: Device, direction: int, is_double: bool, shape_by_reference: Any, image: Address | None,
    weight: Address | None, gradient: Address | None, bias: Address | None, result: Address,
) -> int:  # fmt: skip
    dtype = torch.float64 if is_double else torch.float32
    shape = _ConvolutionGemm(device, direction, dtype, shape_by_reference._obj)
    padded = shape.copy_padded_operand_if_needed(image or 0, gradient or 0)
    left = weight if direction in (FORWARD, GRADIENT_OF_INPUT) else gradient
    _launch_tiled_gemm(device, dtype, shape.build_implicit_gemm(left or 0, padded, result, bias))
    return DONE
