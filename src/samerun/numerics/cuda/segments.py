"""Values that go to places named by sorted keys, on a device: native/cuda/segments.cu."""

from __future__ import annotations

from ctypes import c_int64, c_void_p

import torch
from torch import Tensor

from samerun.numerics.cuda.launch import launch, launch_per_value
from samerun.numerics.cuda.sums import WARP

_BITS = {torch.float32: "32", torch.float64: "64"}


def _pointers(*tensors: Tensor) -> tuple[c_void_p, ...]:
    return tuple(c_void_p(each.data_ptr()) for each in tensors)


def add_to_segments(out: Tensor, source: Tensor, key: Tensor, order: Tensor) -> None:
    """out [outer, places, inner] += source [outer, n, inner], in ascending index for each place.

    `key` int64 [n], sorted; `order` int64 [n]: which value of the source each key belongs to. float32 or float64,
    everything contiguous.
    """
    outer, n, inner = source.shape
    sizes = map(c_int64, (outer, n, inner, out.shape[1]))
    launch_per_value(out.device, "segments", f"add_to_segments{_BITS[out.dtype]}", source.numel(),
         *_pointers(out, source, key, order), *sizes)  # fmt: skip


def sum_segments(out: Tensor, source: Tensor, key: Tensor, order: Tensor, end: Tensor) -> None:
    """out [places, width] = class S over the rows of source [n, width] of each place that has any.

    `end` int64 [n]: behind the last of the keys that are equal to each.
    """
    n, width = source.shape
    blocks = n * -(-width // WARP)
    launch(out.device, "segments", f"sum_segments{_BITS[out.dtype]}", blocks, (WARP, WARP),
           *_pointers(out, source, key, order, end), c_int64(n), c_int64(width))  # fmt: skip


def write_last(out: Tensor, source: Tensor, key: Tensor, order: Tensor) -> None:
    """out [places] = the last value of source [n] of each place that has any; of any type, alike."""
    n = source.numel()
    launch_per_value(out.device, "segments", f"write_last_of_segments{out.element_size()}", n, *_pointers(
        out, source, key, order
    ),
         c_int64(n))  # fmt: skip
