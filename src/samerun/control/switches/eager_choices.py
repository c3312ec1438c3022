"""Faster paths that eager mode takes when it can: recorded."""

from __future__ import annotations

from samerun.control.seeds.loaded import loaded, present
from samerun.control.switches.switch import Switch, Value


def _available() -> bool:
    return loaded("torch", "backends", "_C") is not None


def _read() -> dict[str, Value]:
    backends = present("torch").backends
    einsum = backends.opt_einsum
    return {
        "mha_fastpath": bool(backends.mha.get_fastpath_enabled()),
        "opt_einsum": bool(einsum.is_available()),
        "opt_einsum_enabled": bool(einsum.enabled),
        "opt_einsum_strategy": einsum.strategy,
    }


def _restore(saved: dict[str, Value]) -> None:
    backends, now = present("torch").backends, _read()
    if now["mha_fastpath"] != saved["mha_fastpath"]:
        backends.mha.set_fastpath_enabled(saved["mha_fastpath"])
    if now["opt_einsum_enabled"] != saved["opt_einsum_enabled"]:
        backends.opt_einsum.enabled = saved["opt_einsum_enabled"]
    if now["opt_einsum_strategy"] != saved["opt_einsum_strategy"]:
        backends.opt_einsum.strategy = saved["opt_einsum_strategy"]


SWITCH = Switch(
    "eager_choices",
    "Whether attention modules take their fast path in inference, and whether einsum looks for a better order.",
    "einsum does so if the package opt_einsum is installed: another order gives other bits, but the same in every"
    " run of one environment.",
    "any time",
    _read,
    module="torch",
    available=_available,
    restore=_restore,
    default={"mha_fastpath": True},
)
