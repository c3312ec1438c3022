"""How a program shares the machine with others: OpenMP threads that sleep while they wait, and how busy it was."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

PASSIVE_WAIT = {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0"}
"""Threads that wait for each other sleep. Where others keep the cores busy, threads that spin instead take a hundred
times as long; the work is shared out in the same way, so that no bit changes."""
OWN_CHOICES = (*PASSIVE_WAIT, "GOMP_SPINCOUNT", "KMP_LIBRARY")
"""Where the user has set one of these, nothing is chosen."""
BUSY_SHARE = 0.4
"""From such a share of the machine on that others have taken, seconds say little about a program."""


def choose_passive_wait_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that let threads sleep while they wait; none where the user has chosen how they wait."""
    return {} if any(name in environment for name in OWN_CHOICES) else dict(PASSIVE_WAIT)


@dataclass
class MachineLoad:
    """Processor time that others took while our own runs were made, added up over the runs."""

    others: float = 0.0
    possible: float = 0.0

    def start_run(self) -> tuple[float, float, float]:
        return time.monotonic(), read_machine_busy_seconds(), read_own_processor_seconds()

    def add_finished_run(self, begun: tuple[float, float, float]) -> None:
        """After a run has ended and was waited for: its own processor time is then known."""
        began, busy, own = begun
        others = read_machine_busy_seconds() - busy - (read_own_processor_seconds() - own)
        self.possible += (time.monotonic() - began) * (os.cpu_count() or 1)
        self.others += max(0.0, others)

    @property
    def busy_note(self) -> str:
        """A sentence for the report, or "" where the machine was ours."""
        share = self.others / self.possible if self.possible > 0 else 0.0
        if share < BUSY_SHARE:
            return ""
        return (
            f"The machine was busy: other programs took {share:.0%} of its processor time during the runs."
            " How long these took says little about the program."
        )


def read_machine_busy_seconds() -> float:
    """Processor seconds that anything has taken since the machine was started; 0 where it does not say."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, _, _, irq, softirq, *rest = map(int, file.readline().split()[1:])
    except (OSError, ValueError):
        return 0.0
    stolen = rest[0] if rest else 0
    return float(user + nice + system + irq + softirq + stolen) / os.sysconf("SC_CLK_TCK")


def read_own_processor_seconds() -> float:
    """Those of this process and of the children that it has waited for."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system
