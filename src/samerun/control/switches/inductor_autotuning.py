"""Inductor does not tune kernels by timing them."""

from __future__ import annotations

from typing import Any

from samerun.control.switches import inductor_config as config
from samerun.control.switches.switch import Policy, Switch, Value, Variable

_NAMES = (
    "max_autotune", "max_autotune_pointwise", "max_autotune_gemm", "coordinate_descent_tuning", "benchmark_fusion",
)  # fmt: skip


def _read() -> dict[str, Any]:
    return config.read(*_NAMES)


def _save() -> Any:
    return config.save(*_NAMES)


def _wanted(policy: Policy) -> dict[str, bool]:
    return dict.fromkeys(_read(), False)


def _agrees(read: Value, wanted: Value) -> bool:
    return not any(read.values())


SWITCH = Switch(
    "inductor_autotuning",
    "torch.compile does not tune its kernels by timing them.",
    'mode="max-autotune" of torch.compile asks for it all the same; then inductor\'s deterministic mode keeps it'
    " from changing bits.",
    "any time",
    _read,
    config.write,
    _wanted,
    config.MODULE,
    config.available(*_NAMES),
    _save,
    config.restore,
    agrees=_agrees,
    default=dict.fromkeys(_NAMES, False),
    variables=tuple(Variable(f"TORCHINDUCTOR_{name.upper()}", started=config.available(name)) for name in _NAMES),
)
