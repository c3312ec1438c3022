"""The options that `samerun run` and `samerun doctor` share: the arguments of `deterministic()`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

OPTIONS = (
    click.option("--level", type=click.Choice(["error", "warn"]), default="error", show_default=True,
                 help="What to do about a setting that comes too late, or an operator that has no "
                      "deterministic algorithm."),
    click.option("--precision", type=click.Choice(["ieee", "keep"]), default="ieee", show_default=True,
                 help="ieee: float32 is computed in float32, never in TF32."),
    click.option("--threads", type=click.IntRange(1), metavar="N",
                 help="Threads that share an operator on the CPU. Default: as many as without samerun."),
    click.option("--cudnn-benchmark", type=click.Choice(["off", "keep"]), default="off", show_default=True,
                 help="keep: leave cuDNN's timing of algorithms to the program."),
    click.option("--fill/--no-fill", "fill_uninitialized_memory", default=True, show_default=True,
                 help="Whether fresh memory holds a known value."),
)  # fmt: skip


def add_deterministic_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(OPTIONS):
        command = option(command)
    return command
