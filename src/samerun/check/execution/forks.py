"""Which runs may be forked from a preloaded process, and the processes they are forked from.

Forks share more than fresh processes do: addresses, the hash seed, what fresh memory holds. So a run is forked only
where its plan holds all of these still anyway, and only to be compared with runs that were forked too.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from samerun.check.execution.interruption import CHECKPOINTS
from samerun.check.execution.preloaded import Forked, Preloaded
from samerun.check.plan import Plan
from samerun.check.variations.address_layout import fixed_layout
from samerun.record.config import CONFIG_VARIABLE
from samerun.record.watching.native_entropy import PRELOAD as LIBRARIES
from samerun.record.watching.preloaded.import_conditions import ORDER_FILE
from samerun.record.watching.preloaded.serve import REFUSED

SWITCH = "SAMERUN_FORKS"
"""Set to "off", every run starts from nothing."""
OWN = (CONFIG_VARIABLE, CHECKPOINTS)
"""Variables that are other ones in each run."""
FORKED = "forked"
"""File beside the traces of a forked run: the modules that were imported beforehand."""
MOST = 3
"""So many preloaded processes at once."""

Key = tuple[object, ...]


class Forks:
    """The preloaded processes of a check, one for each environment that runs are asked for in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "preloaded"
        self.reason = "" if sys.platform == "linux" and os.environ.get(SWITCH) != "off" else "switched off"
        """Why no run is forked from now on; "" while they may be."""
        self._noting = not self.reason
        self._order: list[str] | None = None
        self._processes: dict[Key, Preloaded] = {}
        self._made = 0

    def wants_note(self, plan: Plan) -> bool:
        """Should a run that starts from nothing write down how it imports torch?

        All of a check do, or none: it takes memory, and objects must lie at the same addresses in all of them.
        """
        return self._noting and is_script(plan)

    def learn(self, folder: Path) -> None:
        """Read what the first run has written down. Nothing there: it did not import torch, so nothing is forked."""
        if self._order is not None or self.reason:
            return
        try:
            noted = json.loads((folder / ORDER_FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        self._order, self.reason = list(noted["order"]), str(noted["reason"])

    def possible(self, plan: Plan) -> bool:
        """Can this run be forked, as far as is known?"""
        return not self.reason and self._order is not None and is_held(plan)

    def fork(
        self, plan: Plan, environment: Mapping[str, str], out: IO[bytes], err: IO[bytes]
    ) -> tuple[Preloaded, Forked] | None:
        """A run as a fork, where `possible` said so; None where it failed. environment: all of it."""
        assert self._order is not None
        rest = {k: v for k, v in environment.items() if k not in OWN}
        key = (plan.command, plan.prefix, tuple(sorted(rest.items())))
        if key not in self._processes:
            self._made += 1
            while len(self._processes) >= MOST:
                self._processes.pop(next(iter(self._processes))).close()
            blank = {**environment, **{name: "" for name in OWN if name in environment}}
            folder = self.folder / str(self._made)
            made = Preloaded.start(plan.command, plan.prefix, blank, self._order, folder)
            if isinstance(made, str):
                self.reason = made
                return None
            self._processes[key] = made
        parent = self._processes[key]
        Path(out.name).with_name(FORKED).write_text(",".join(self._order), encoding="utf-8")
        child = parent.run({k: environment[k] for k in OWN if k in environment}, out, err, plan.umask)
        if child is None:
            self.reason = "the preloaded process ended"
            return None
        return parent, child

    def misfit(self, folder: Path, failed: bool) -> bool:
        """Must a forked run be made again from nothing? Then nothing is forked any more.

        That is so where the program was not as it was when it was first run, and where it did not end well:
        whether it failed for being a fork cannot be told.
        """
        refused = folder / REFUSED
        if refused.exists():
            self.reason = refused.read_text(encoding="utf-8")
        elif failed:
            self.reason = "a forked run failed"
        return bool(self.reason)

    def close(self) -> None:
        for process in self._processes.values():
            process.close()
        self._processes.clear()
        shutil.rmtree(self.folder, ignore_errors=True)


def was_forked(folder: Path) -> bool:
    """Was the run with this folder forked?"""
    return (folder / FORKED).exists()


def is_script(plan: Plan) -> bool:
    """Is the program a file run by this very Python, without options of the interpreter?"""
    command = plan.command
    return len(command) > 1 and command[0] == sys.executable and command[1].endswith(".py")


def is_held(plan: Plan) -> bool:
    """Does the plan hold still what forks have in common, and change nothing that a fork cannot have of its own?"""
    watch, environment = plan.watch, {**os.environ, **plan.environment}
    seed = environment.get("PYTHONHASHSEED", "random")
    still = seed != "random" and plan.prefix == fixed_layout() and "MALLOC_PERTURB_" in environment
    elsewhere = plan.held or plan.copied or plan.other_home or LIBRARIES in plan.environment
    other = watch.executions or watch.kill_after or watch.kept_states or watch.replay or watch.start_method
    return still and watch.fresh_memory == "zeros" and not (elsewhere or other)
