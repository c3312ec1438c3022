"""The functions of the C library by name, for memory of a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from samerun.numerics.cuda import elementwise, products, rows, sums

# The same names and arguments as the C library, so that there is one table of operators and one text above both
# (decision 0031): `NativeFunction.for_device_of(x)` looks up the one for the device of x.
ENTRIES: dict[str, Callable[..., Any]] = {
    "samerun_function": elementwise.function,
    "samerun_pair_function": elementwise.pair_function,
    "samerun_activation": elementwise.activation,
    "samerun_roots": elementwise.roots,
    "samerun_random": elementwise.random,
    "samerun_randint": elementwise.randint,
    "samerun_words64": elementwise.words64,
    "samerun_block_words": elementwise.block_words,
    "samerun_sum32": sums.sum32,
    "samerun_sum64": sums.sum64,
    "samerun_cumulate32": sums.cumulate32,
    "samerun_cumulate64": sums.cumulate64,
    "samerun_rows": rows.rows,
    "samerun_norm": rows.norm,
    "samerun_norm_backward": rows.norm_backward,
    "samerun_norm_backward_with_weight": rows.norm_backward_with_weight,
    "samerun_channels": rows.channels,
    "samerun_channels_backward": rows.channels_backward,
    "samerun_matmul": products.matmul,
    "samerun_convolution": products.convolution,
}
