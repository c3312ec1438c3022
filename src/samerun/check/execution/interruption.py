"""How a program is to be interrupted and resumed, as the options say."""

from __future__ import annotations

import re
import shlex
import signal
from dataclasses import dataclass, replace

from samerun.base.errors import SamerunError
from samerun.check.plan import Plan

CHECKPOINTS = "SAMERUN_CHECKPOINTS"
SIGNALS = {"TERM": signal.SIGTERM, "KILL": signal.SIGKILL}
_SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


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

    def apply_to(self, plan: Plan, checkpoint_folder: str) -> Plan:
        values = {name: value.replace("{folder}", checkpoint_folder) for name, value in self.variables}
        arguments = tuple(word.replace("{folder}", checkpoint_folder) for word in self.arguments)
        plan = plan.with_environment(**{CHECKPOINTS: checkpoint_folder}, **values)
        return replace(plan, command=(*plan.command, *arguments))


@dataclass(frozen=True)
class Interruption:
    """One interruption. step None: the middle one; signal None: the program ends by itself."""

    first: StartSettings = StartSettings()
    second: StartSettings = StartSettings()
    step: int | None = None
    signal: str | None = None

    def describe(self, kill_step: int, steps_completed: int, total_steps: int) -> str:
        """In words. kill_step: where it was to be killed; steps_completed: how many it made, of `total_steps`."""
        by_itself = f"interrupted after step {steps_completed} of {total_steps}"
        return f"ended by SIG{self.signal} at step {kill_step}" if self.signal else by_itself


def parse_interruptions(
    interrupt_option: str | None, resume_option: str | None, kill_option: str | None
) -> tuple[Interruption, ...]:
    """The interruptions that the options ask for; by default, the middle step with both signals.

    Raises SamerunError for options that cannot be read, and for --interrupt without --resume or the reverse.
    """
    if (interrupt_option is None) != (resume_option is None):
        given, lacking = ("--resume", "--interrupt") if interrupt_option is None else ("--interrupt", "--resume")
        raise SamerunError(
            f"{given} is given, and {lacking} is not.",
            hint='Both are needed: --interrupt "STOP_AT=3 CKPT={folder}/a.pt" --resume "RESUME={folder}/a.pt".',
        )
    starts = _parse_start_settings("--interrupt", interrupt_option), _parse_start_settings("--resume", resume_option)
    if kill_option is not None:
        step, _, name = kill_option.partition(":")
        if not step.isdigit() or int(step) < 1 or (name or "KILL") not in SIGNALS:
            raise SamerunError(
                f"--kill {kill_option}: a step from 1, and TERM or KILL behind a colon, are needed.",
                hint="Write --kill 10:TERM",
            )
        return (Interruption(*starts, int(step), name or "KILL"),)
    if interrupt_option is not None:
        if not starts[0].is_nonempty:
            raise SamerunError(
                "--interrupt: nothing is set.",
                hint='Write variables first, then arguments ("A=1 --flag"), or name a step to end it at with --kill.',
            )
        return (Interruption(*starts),)
    return tuple(Interruption(signal=name) for name in SIGNALS)


def _parse_start_settings(option: str, text: str | None) -> StartSettings:
    try:
        words = shlex.split(text or "")
    except ValueError as error:
        raise SamerunError(f"{option} {text}: {error}.", hint='Write it as in a shell: "NAME=VALUE --flag".') from error
    count = next((at for at, word in enumerate(words) if not _SETTING.match(word)), len(words))
    variables = tuple((name, value) for name, _, value in (word.partition("=") for word in words[:count]))
    return StartSettings(variables, tuple(words[count:]))
