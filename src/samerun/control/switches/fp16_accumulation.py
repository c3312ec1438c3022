"""Matrix products in float16 are not summed in float16."""

from __future__ import annotations

from samerun.control.switches.started import torch_c, torch_has
from samerun.control.switches.switch import Policy, Switch


def _available() -> bool:
    return torch_has("_get_cublas_allow_fp16_accumulation", "_set_cublas_allow_fp16_accumulation")


def _read() -> bool:
    return bool(torch_c()._get_cublas_allow_fp16_accumulation())


def _write(value: bool) -> None:
    torch_c()._set_cublas_allow_fp16_accumulation(value)


def _wanted(policy: Policy) -> bool | None:
    return None if policy.precision == "keep" else False


SWITCH = Switch(
    "fp16_accumulation",
    "Matrix products in float16 are summed in float32.",
    'Summing in float16 loses bits in an order that depends on the algorithm. Left alone with precision="keep".',
    "any time",
    _read,
    _write,
    _wanted,
    "torch",
    _available,
    default=False,
)
