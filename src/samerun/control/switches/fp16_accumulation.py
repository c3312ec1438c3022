"""Matrix products in float16 are not summed in float16."""

from __future__ import annotations

from samerun.control.switches.flag import flag_switch, off_unless_kept

SWITCH = flag_switch(
    "fp16_accumulation",
    "Matrix products in float16 are summed in float32.",
    'Summing in float16 loses bits in an order that depends on the algorithm. Left alone with precision="keep".',
    ("_get_cublas_allow_fp16_accumulation", "_set_cublas_allow_fp16_accumulation"),
    off_unless_kept,
)
