"""Class S on a device: sums, running sums, and values that go to places named by sorted keys (segments)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_int, c_int64, c_void_p

import torch
from torch import Tensor

from samerun.numerics.cuda.elementwise import launch_fill
from samerun.numerics.cuda.launch import THREADS, Address, allocate_uninitialized, launch_grid_stride, launch_kernel
from samerun.numerics.status import DONE

BLOCK, WARP, FEW_COLUMNS = 4096, 32, 8
MOST_DIMENSIONS = 64
PRODUCT = 4


class DimensionsStruct(ctypes.Structure):
    """dims_t of native/cuda/sums.cu."""

    _fields_ = [
        ("n", c_int64), ("total", c_int64), ("size", c_int64 * MOST_DIMENSIONS), ("stride", c_int64 * MOST_DIMENSIONS)
    ]  # fmt: skip


def merge_contiguous_dimensions(sizes: Sequence[int], strides: Sequence[int]) -> DimensionsStruct:
    """Dimensions that lie behind one another as one longer dimension are made one; those of size 1 left out."""
    found = DimensionsStruct(n=0, total=1)
    for size, stride in zip(sizes, strides, strict=True):
        found.total *= size
        if size == 1:
            continue
        last = found.n - 1
        if last >= 0 and found.stride[last] == stride * size:
            found.size[last] *= size
            found.stride[last] = stride
        else:
            found.size[found.n], found.stride[found.n] = size, stride
            found.n += 1
    return found


def launch_block_tree_reduction(
    device: torch.device,
    bits: str,
    is_product: bool,
    block_results: Address,
    out: Address,
    num_blocks: int,
    num_outputs: int,
) -> None:
    """The tree over the sums of `num_blocks` blocks for each output, in place; results go to `out`."""
    threads = (max(WARP, min(THREADS, num_blocks // 2)),)
    given = (c_int(is_product), c_void_p(block_results), c_void_p(out), c_int64(num_blocks))
    launch_kernel(device, "sums", f"reduce_block_trees{bits}", num_outputs, threads, *given)


def _make_tree_sum_launcher(dtype: torch.dtype, bits: str) -> Callable[..., int]:
    def launch_tree_sum(
        device: torch.device,
        term: int,
        x: Address,
        center: Address,
        out: Address,
        ndim: int,
        sizes_address: int,
        strides_address: int,
        reduced_dims_mask: int,
    ) -> int:
        sizes, strides = ((c_int64 * ndim).from_address(at) if ndim else () for at in (sizes_address, strides_address))
        chosen = [dim for dim in range(ndim) if reduced_dims_mask >> dim & 1]
        others = [dim for dim in range(ndim) if not reduced_dims_mask >> dim & 1]
        reduced, kept = (
            merge_contiguous_dimensions([sizes[d] for d in which], [strides[d] for d in which])
            for which in (chosen, others)
        )
        if kept.total == 0:
            return DONE
        if reduced.total == 0:
            launch_fill(device, dtype, out, float(term == PRODUCT), kept.total)
            return DONE
        blocks = -(-reduced.total // BLOCK)
        parts = allocate_uninitialized(device, kept.total * blocks if blocks > 1 else 0, dtype)
        to = parts.data_ptr() if blocks > 1 else out
        given = (c_int(term), c_void_p(x), c_void_p(center), c_void_p(to), c_int64(blocks), kept, reduced)
        last, inner = kept.n - 1, reduced.n - 1
        is_contiguous = last >= 0 and kept.stride[last] == 1 and kept.size[last] >= FEW_COLUMNS
        if is_contiguous and (inner < 0 or reduced.stride[inner] != 1):
            line = kept.size[last]
            num_blocks = kept.total // line * -(-line // WARP) * blocks
            launch_kernel(device, "sums", f"reduce_column_blocks{bits}", num_blocks, (WARP, WARP), *given)
        else:
            launch_kernel(
                device,
                "sums",
                f"reduce_row_blocks{bits}",
                -(-kept.total * blocks * WARP // THREADS),
                (THREADS,),
                *given,
            )
        if blocks > 1:
            launch_block_tree_reduction(device, bits, term == PRODUCT, to, out, blocks, kept.total)
        return DONE

    return launch_tree_sum


def _make_cumulate_launcher(bits: str) -> Callable[..., None]:
    def launch_cumulate(
        device: torch.device, is_product: bool, x: Address, out: Address, outer: int, n: int, inner: int
    ) -> None:
        given = (c_int(is_product), c_void_p(x), c_void_p(out), c_int64(outer), c_int64(n), c_int64(inner))
        launch_grid_stride(device, "sums", f"cumulate{bits}", outer * inner if n else 0, *given)

    return launch_cumulate


sum32, sum64 = _make_tree_sum_launcher(torch.float32, "32"), _make_tree_sum_launcher(torch.float64, "64")
cumulate32, cumulate64 = _make_cumulate_launcher("32"), _make_cumulate_launcher("64")

_BITS = {torch.float32: "32", torch.float64: "64"}


def _pointers(*tensors: Tensor) -> tuple[c_void_p, ...]:
    return tuple(c_void_p(each.data_ptr()) for each in tensors)


def launch_ordered_index_add(out: Tensor, source: Tensor, sorted_index: Tensor, order: Tensor) -> None:
    """out [outer, places, inner] += source [outer, n, inner], in ascending index for each place.

    `sorted_index` int64 [n]; `order` int64 [n]: which value of the source each belongs to. float32 or float64,
    everything contiguous.
    """
    outer, n, inner = source.shape
    sizes = map(c_int64, (outer, n, inner, out.shape[1]))
    launch_grid_stride(out.device, "segments", f"add_to_segments{_BITS[out.dtype]}", source.numel(),
         *_pointers(out, source, sorted_index, order), *sizes)  # fmt: skip


def launch_segment_tree_sum(
    out: Tensor, source: Tensor, sorted_index: Tensor, order: Tensor, segment_ends: Tensor
) -> None:
    """out [places, width] = class S over the rows of source [n, width] of each place that has any.

    `segment_ends` int64 [n]: behind the last of the keys that are equal to each.
    """
    n, width = source.shape
    blocks = n * -(-width // WARP)
    launch_kernel(out.device, "segments", f"sum_segments{_BITS[out.dtype]}", blocks, (WARP, WARP),
           *_pointers(out, source, sorted_index, order, segment_ends), c_int64(n), c_int64(width))  # fmt: skip


def launch_write_last_of_segments(out: Tensor, source: Tensor, sorted_index: Tensor, order: Tensor) -> None:
    """out [places] = the last value of source [n] of each place that has any; of any type, alike."""
    n = source.numel()
    launch_grid_stride(out.device, "segments", f"write_last_of_segments{out.element_size()}", n, *_pointers(
        out, source, sorted_index, order
    ),
         c_int64(n))  # fmt: skip
