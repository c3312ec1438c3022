"""What a program costs under each setting, as plain values: made by `check`, shown by `report`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

SCHEMA = 1
MEASURED, STOPPED = "measured", "stopped"


@dataclass(frozen=True)
class Amount:
    """The median of several runs, with the least and the most."""

    median: float
    least: float
    most: float


@dataclass(frozen=True)
class Setting:
    """One column. `outcome`: measured, or stopped where the program does not run like this; `detail` says why.

    Of the whole program: seconds by the wall clock and of the processor, and the peak of memory in bytes. Of an
    optimizer step: seconds between the end of the first and of the last, by their number; None with fewer than two.
    `device_peak`: of torch's allocator; None without a device.
    """

    name: str
    outcome: str
    detail: str
    steps: int = 0
    wall: Amount | None = None
    cpu: Amount | None = None
    step: Amount | None = None
    step_cpu: Amount | None = None
    peak: Amount | None = None
    device_peak: Amount | None = None


@dataclass(frozen=True)
class OperatorCost:
    """One operator under one setting: calls, seconds, and bytes by which it raised the peak; medians of the runs."""

    calls: int
    seconds: float
    peak_bytes: float


@dataclass(frozen=True)
class CostReport:
    """The answer of `samerun cost`. `operators`: name, then what it costs under each setting, in their order."""

    command: tuple[str, ...]
    repeat: int
    settings: tuple[Setting, ...]
    operators: tuple[tuple[str, tuple[OperatorCost | None, ...]], ...]

    @property
    def exit_code(self) -> int:
        """0: every setting was measured. 1: the program does not run under one of them."""
        return int(any(one.outcome != MEASURED for one in self.settings))

    def to_dict(self, version: str, machine: dict[str, Any]) -> dict[str, Any]:
        """The JSON of schema 1."""
        operators = [
            {"operator": name, **{s.name: asdict(c) if c else None for s, c in zip(self.settings, costs, strict=True)}}
            for name, costs in self.operators
        ]
        return {
            "schema": SCHEMA,
            "samerun": version,
            "command": list(self.command),
            "repeat": self.repeat,
            "settings": [asdict(one) for one in self.settings],
            "operators": operators,
            "machine": machine,
        }
