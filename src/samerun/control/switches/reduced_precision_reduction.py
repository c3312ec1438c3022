"""Matrix products of half precision keep their sums in float32."""

from __future__ import annotations

from samerun.control.switches.started import torch_c, torch_has
from samerun.control.switches.switch import Policy, Switch

_KINDS = ("bf16", "fp16")
_ON_CPU = "cpu_fp16"


def _available() -> bool:
    return torch_has(*(f"_{verb}_cublas_allow_{kind}_reduced_precision_reduction"
                       for verb in ("get", "set") for kind in _KINDS))  # fmt: skip


def _read() -> dict[str, list[bool]]:
    """For each type: whether sums may be reduced, and whether products may be split along K."""
    found = {
        kind: [bool(one) for one in getattr(torch_c(), f"_get_cublas_allow_{kind}_reduced_precision_reduction")()]
        for kind in _KINDS
    }
    if torch_has("_get_cpu_allow_fp16_reduced_precision_reduction"):
        found[_ON_CPU] = [bool(torch_c()._get_cpu_allow_fp16_reduced_precision_reduction())]
    return found


def _write(value: dict[str, list[bool]]) -> None:
    for kind, allowed in value.items():
        if kind != _ON_CPU:
            getattr(torch_c(), f"_set_cublas_allow_{kind}_reduced_precision_reduction")(*allowed)
        elif _read().get(kind) != allowed:  # some builds refuse to be told what they do already
            torch_c()._set_cpu_allow_fp16_reduced_precision_reduction(*allowed)


def _wanted(policy: Policy) -> dict[str, list[bool]] | None:
    if policy.precision == "keep":
        return None
    return {kind: [False] * len(allowed) for kind, allowed in _read().items()}


SWITCH = Switch(
    "reduced_precision_reduction",
    "Matrix products in bfloat16 and float16 are summed in float32, and not split along K.",
    "Setting torch's attribute to False leaves split-K on; both halves are needed: (False, False)."
    ' Left alone with precision="keep".',
    "any time",
    _read,
    _write,
    _wanted,
    "torch",
    _available,
    default={"bf16": [True, True], "fp16": [True, True], _ON_CPU: [False]},
)
