"""Which implementations of attention may be chosen."""

from __future__ import annotations

from samerun.control.switches.started import torch_c, torch_has
from samerun.control.switches.switch import Policy, Switch

_KINDS = ("flash", "mem_efficient", "math", "cudnn")


def _available() -> bool:
    return torch_has(*(f"_get_{kind}_sdp_enabled" for kind in _KINDS), *(f"_set_sdp_use_{kind}" for kind in _KINDS))


def _read() -> dict[str, bool]:
    return {kind: bool(getattr(torch_c(), f"_get_{kind}_sdp_enabled")()) for kind in _KINDS}


def _write(value: dict[str, bool]) -> None:
    for kind, enabled in value.items():
        getattr(torch_c(), f"_set_sdp_use_{kind}")(enabled)


def _wanted(policy: Policy) -> dict[str, bool]:
    return {"cudnn": False, "mem_efficient": False} if policy.level == "warn" else {"cudnn": False}


def _agrees(read: dict[str, bool], wanted: dict[str, bool]) -> bool:
    return all(read[kind] == enabled for kind, enabled in wanted.items())


SWITCH = Switch(
    "sdpa",
    "Attention is computed by an implementation that can be deterministic.",
    "cuDNN's attention is off. Flash and memory-efficient attention are deterministic when deterministic"
    ' algorithms are on in the mode "error"; in the mode "warn" memory-efficient attention stays'
    " nondeterministic, so it is off there.",
    "any time",
    _read,
    _write,
    _wanted,
    "torch",
    _available,
    agrees=_agrees,
    default=dict.fromkeys(_KINDS, True),
)
