"""How a program is to be interrupted and resumed, as the options say."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from samerun.base.errors import SamerunError
from samerun.check.plan import NO_SETTINGS, StartSettings, parse_environment_and_arguments

SIGNALS = {"TERM": signal.SIGTERM, "KILL": signal.SIGKILL}


@dataclass(frozen=True)
class Interruption:
    """One interruption. step None: the middle one; signal None: the program ends by itself."""

    first: StartSettings = NO_SETTINGS
    second: StartSettings = NO_SETTINGS
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
    starts = (
        parse_environment_and_arguments("--interrupt", interrupt_option),
        parse_environment_and_arguments("--resume", resume_option),
    )
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
