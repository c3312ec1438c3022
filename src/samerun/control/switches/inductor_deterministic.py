"""Inductor (`torch.compile`) in its deterministic mode, whenever it is loaded."""

from __future__ import annotations

from typing import Any

from samerun.control.switches import inductor_config as config
from samerun.control.switches.switch import Policy, Switch, Variable

_NAME = "deterministic"


def _read() -> bool:
    return bool(config.read(_NAME)[_NAME])


def _write(value: bool) -> None:
    config.write({_NAME: value})


def _save() -> Any:
    return config.save(_NAME)


def _wanted(policy: Policy) -> bool:
    return True


SWITCH = Switch(
    "inductor_deterministic",
    "torch.compile does not choose kernels by timing where that changes bits.",
    "torch.use_deterministic_algorithms sets it and, called with False, erases what you chose;"
    " torch.set_deterministic_debug_mode forgets it. Here it is set as inductor is loaded, whenever that is,"
    " and given back as you had it.",
    "any time",
    _read,
    _write,
    _wanted,
    config.MODULE,
    config.available(_NAME),
    _save,
    config.restore,
    default=False,
    variables=(Variable("TORCHINDUCTOR_DETERMINISTIC", started=config.available(_NAME)),),
)
