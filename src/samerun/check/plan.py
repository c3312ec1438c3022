"""The plan of a run, as a frozen value; variations and settings of the user's own change it into another."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from samerun.base.errors import SamerunError
from samerun.record.comparison.streams import ComparisonScope, ScopeRestriction
from samerun.record.config import WatchConfig
from samerun.record.trace.run import RunTraces


@dataclass(frozen=True)
class RunPlan:
    """What to run and in which environment."""

    command: tuple[str, ...]
    """The whole command line, interpreter included."""
    shown: tuple[str, ...]
    """What the user wrote: the script and its arguments."""
    watch: WatchConfig
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables set on top of the inherited environment."""
    held: Mapping[str, str] = field(default_factory=dict)
    """Variables set on top of those, which no variation changes."""
    prefix: tuple[str, ...] = ()
    """Put in front of the command (`setarch -R`)."""
    umask: int | None = None
    """The umask of the run; None: inherited."""
    copied: bool = False
    """Run in a fresh copy of the working directory."""
    without: tuple[str, ...] = ()
    """Files, relative to the working directory, that its copy lacks; absolute ones below the home directory, of which
    the run then gets another with links to all else."""
    other_home: bool = False
    """Another home directory, which holds links to what is in the real one."""
    scope: ComparisonScope = ()
    """What comparisons with this run leave out; see samerun.record.comparison.compare."""
    volatile_lines: frozenset[bytes] = frozenset()
    """Printed lines, "0" in the place of each number, that comparisons with this run leave out: they differ even where
    every source of randomness is held still (a duration, memory in use)."""
    own_checkpoints: bool = False
    """Give each run an empty folder in SAMERUN_CHECKPOINTS, unless the environment names one."""

    def with_environment(self, **variables: str) -> RunPlan:
        return replace(self, environment={**self.environment, **variables})

    def with_watch(self, **settings: Any) -> RunPlan:
        return replace(self, watch=replace(self.watch, **settings))

    def with_comparison_limits(self, *limits: ScopeRestriction) -> RunPlan:
        return replace(self, scope=tuple(dict.fromkeys((*self.scope, *limits))))

    def with_added_pins(self, *pin_names: str) -> RunPlan:
        return self.with_watch(pins=tuple(dict.fromkeys((*self.watch.pins, *pin_names))))


@dataclass(frozen=True)
class Variation:
    """One thing that may be different from run to run.

    `apply(plan, vary)` is pure: with `vary` it changes the thing, without it pins the control value.
    `detail` says what is changed to what; `cause` is the kind of cause a difference points to;
    `unavailable(plan)` gives the reason why it cannot be varied here, or ""; `pointless(traces)` the
    reason why a program that ran like this cannot depend on it, or "". If `may_fail`, a varied run that
    fails says nothing about the values: it is trouble, not a difference. One that is `only_by_name` asks a question of
    its own, and is not part of `all`.
    """

    name: str
    group: str
    detail: str
    apply: Callable[[RunPlan, bool], RunPlan]
    cause: str
    unavailable: Callable[[RunPlan], str] = lambda plan: ""
    pointless: Callable[[RunTraces], str] = lambda traces: ""
    may_fail: bool = False
    only_by_name: bool = False


# --- settings of the user's own
CHECKPOINTS = "SAMERUN_CHECKPOINTS"
_SETTING = re.compile(r"[A-Z_][A-Z0-9_]*=")
"""A variable of the environment as people name them; `model=small` is an argument of Hydra's or OmegaConf's kind."""


@dataclass(frozen=True)
class StartSettings:
    """Variables and arguments for one start of the program; `{folder}` stands for the shared folder."""

    variables: tuple[tuple[str, str], ...] = ()
    arguments: tuple[str, ...] = ()

    @property
    def is_nonempty(self) -> bool:
        return bool(self.variables or self.arguments)

    def __str__(self) -> str:
        return " ".join([*(f"{name}={value}" for name, value in self.variables), *self.arguments])

    def apply_to(self, plan: RunPlan, checkpoint_folder: str) -> RunPlan:
        values = {name: value.replace("{folder}", checkpoint_folder) for name, value in self.variables}
        arguments = tuple(word.replace("{folder}", checkpoint_folder) for word in self.arguments)
        plan = plan.with_environment(**{CHECKPOINTS: checkpoint_folder}, **values)
        return replace(plan, command=(*plan.command, *arguments))


NO_SETTINGS = StartSettings()


def parse_environment_and_arguments(option: str, text: str | None) -> StartSettings:
    """ "NAME=VALUE ... [ARGS]" as an option has it: names in capitals. Raises SamerunError for an open quote."""
    try:
        words = shlex.split(text or "")
    except ValueError as error:
        raise SamerunError(f"{option} {text}: {error}.", hint='Write it as in a shell: "NAME=VALUE --flag".') from error
    count = next((at for at, word in enumerate(words) if not _SETTING.match(word)), len(words))
    variables = tuple((name, value) for name, _, value in (word.partition("=") for word in words[:count]))
    return StartSettings(variables, tuple(words[count:]))
