"""How inductor draws random numbers, and other settings of its numerics: recorded."""

from __future__ import annotations

from typing import Any

from samerun.control.switches import inductor_config as config
from samerun.control.switches.switch import Switch

_NAMES = ("fallback_random", "align_random_eager", "batch_invariant", "emulate_precision_casts")


def _read() -> dict[str, Any]:
    return config.read(*_NAMES)


def _save() -> Any:
    return config.save(*_NAMES)


SWITCH = Switch(
    "inductor_random",
    "Whether torch.compile draws the random numbers of eager mode, and how closely it follows eager numerics.",
    "Compiled programs draw other numbers than eager ones unless fallback_random is on. Two runs of the same"
    " program agree either way, so nothing is set.",
    "any time",
    _read,
    module=config.MODULE,
    available=config.available("fallback_random"),
    save=_save,
    restore=config.restore,
    default=dict.fromkeys(_NAMES, False),
)
