"""The functions of the C library by name, for memory of a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from samerun.numerics.cuda import elementwise, products, rows, sums

# The same names and arguments as the C library, so that there is one table of operators and one text above both
# (decision 0031): `NativeFunction.for_device_of(x)` looks up the one for the device of x.
ENTRIES: dict[str, Callable[..., Any]] = {
    "samerun_map_function": elementwise.launch_unary_function,
    "samerun_map_binary_function": elementwise.launch_binary_function,
    "samerun_map_activation": elementwise.launch_activation,
    "samerun_square_roots": elementwise.launch_sqrt,
    "samerun_random_floats": elementwise.launch_random_floats,
    "samerun_randint": elementwise.launch_randint,
    "samerun_random_words64": elementwise.launch_random_words64,
    "samerun_random_block_words": elementwise.launch_random_block_words,
    "samerun_sum32": sums.sum32,
    "samerun_sum64": sums.sum64,
    "samerun_cumulate32": sums.cumulate32,
    "samerun_cumulate64": sums.cumulate64,
    "samerun_softmax_family_rows": rows.launch_softmax_family_rows,
    "samerun_normalize_rows": rows.launch_normalize_rows,
    "samerun_normalize_rows_backward": rows.launch_normalize_rows_backward,
    "samerun_normalize_rows_backward_with_weight": rows.launch_normalize_rows_backward_with_weight,
    "samerun_normalize_channels": rows.launch_normalize_channels,
    "samerun_normalize_channels_backward": rows.launch_normalize_channels_backward,
    "samerun_matmul": products.launch_matmul,
    "samerun_convolution": products.launch_convolution,
}
