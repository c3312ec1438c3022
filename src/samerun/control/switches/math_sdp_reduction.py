"""The plain implementation of attention computes half precision inputs in float32."""

from __future__ import annotations

from samerun.control.switches.started import torch_c, torch_has
from samerun.control.switches.switch import Policy, Switch


def _available() -> bool:
    return torch_has("_get_math_sdp_allow_fp16_bf16_reduction", "_set_math_sdp_allow_fp16_bf16_reduction")


def _read() -> bool:
    return bool(torch_c()._get_math_sdp_allow_fp16_bf16_reduction())


def _write(value: bool) -> None:
    torch_c()._set_math_sdp_allow_fp16_bf16_reduction(value)


def _wanted(policy: Policy) -> bool | None:
    return None if policy.precision == "keep" else False


SWITCH = Switch(
    "math_sdp_reduction",
    "Attention in its plain implementation keeps float32 between its steps for half precision inputs.",
    'It is the fallback when no other implementation is deterministic. Left alone with precision="keep".',
    "any time",
    _read,
    _write,
    _wanted,
    "torch",
    _available,
    default=False,
)
