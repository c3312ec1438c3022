"""Which instructions torch's own CPU kernels use: recorded."""

from __future__ import annotations

from samerun.control.seeds.loaded import loaded, present
from samerun.control.switches.started import torch_started
from samerun.control.switches.switch import Switch, Variable


def _available() -> bool:
    return loaded("torch", "backends", "_C") is not None


def _read() -> str:
    return str(present("torch").backends.cpu.get_cpu_capability())


SWITCH = Switch(
    "cpu_capability",
    "Which instructions torch's own CPU kernels are made of.",
    "It matters between machines, not between runs on one; see mkl_cbwr.",
    "before torch",
    _read,
    module="torch",
    available=_available,
    variables=(Variable("ATEN_CPU_CAPABILITY", started=torch_started),),
)
