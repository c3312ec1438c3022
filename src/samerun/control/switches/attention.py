"""Scaled dot product attention: which implementations may be chosen, and in which precision."""

from __future__ import annotations

from samerun.control.switches.switch import Policy, Switch
from samerun.control.switches.torch_flags import (
    choose_off_unless_kept,
    get_torch_c_module,
    make_flag_switch,
    torch_c_has_functions,
)

# Which implementations of attention may be chosen.

_SDPA_KINDS = ("flash", "mem_efficient", "math", "cudnn")


def _sdpa_available() -> bool:
    getters = (f"_get_{kind}_sdp_enabled" for kind in _SDPA_KINDS)
    setters = (f"_set_sdp_use_{kind}" for kind in _SDPA_KINDS)
    return torch_c_has_functions(*getters, *setters)


def _read_sdpa_backends() -> dict[str, bool]:
    return {kind: bool(getattr(get_torch_c_module(), f"_get_{kind}_sdp_enabled")()) for kind in _SDPA_KINDS}


def _write_sdpa_backends(value: dict[str, bool]) -> None:
    for kind, enabled in value.items():
        getattr(get_torch_c_module(), f"_set_sdp_use_{kind}")(enabled)


def _choose_sdpa_backends(policy: Policy) -> dict[str, bool]:
    return {"cudnn": False, "mem_efficient": False} if policy.level == "warn" else {"cudnn": False}


def _sdpa_backends_agree(read: dict[str, bool], wanted: dict[str, bool]) -> bool:
    return all(read[kind] == enabled for kind, enabled in wanted.items())


SDPA = Switch(
    "sdpa",
    "Attention is computed by an implementation that can be deterministic.",
    "cuDNN's attention is off. Flash and memory-efficient attention are deterministic when deterministic"
    ' algorithms are on in the mode "error"; in the mode "warn" memory-efficient attention stays'
    " nondeterministic, so it is off there.",
    "any time",
    _read_sdpa_backends,
    _write_sdpa_backends,
    _choose_sdpa_backends,
    "torch",
    _sdpa_available,
    agrees=_sdpa_backends_agree,
    default=dict.fromkeys(_SDPA_KINDS, True),
)


# The plain implementation of attention computes half precision inputs in float32.

MATH_SDP_REDUCTION = make_flag_switch(
    "math_sdp_reduction",
    "Attention in its plain implementation keeps float32 between its steps for half precision inputs.",
    'It is the fallback when no other implementation is deterministic. Left alone with precision="keep".',
    ("_get_math_sdp_allow_fp16_bf16_reduction", "_set_math_sdp_allow_fp16_bf16_reduction"),
    choose_off_unless_kept,
)
