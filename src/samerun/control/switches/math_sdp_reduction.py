"""The plain implementation of attention computes half precision inputs in float32."""

from __future__ import annotations

from samerun.control.switches.flag import flag_switch, off_unless_kept

SWITCH = flag_switch(
    "math_sdp_reduction",
    "Attention in its plain implementation keeps float32 between its steps for half precision inputs.",
    'It is the fallback when no other implementation is deterministic. Left alone with precision="keep".',
    ("_get_math_sdp_allow_fp16_bf16_reduction", "_set_math_sdp_allow_fp16_bf16_reduction"),
    off_unless_kept,
)
