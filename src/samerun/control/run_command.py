"""`samerun run`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, NoReturn

import click

from samerun import __version__
from samerun.base.errors import SamerunError
from samerun.base.launch import with_bootstrap
from samerun.base.program_command import ProgramCommand, check_writable, target_of, write_result
from samerun.control.hold_options import hold_options
from samerun.control.seeds.derive import LARGEST
from samerun.control.start import VARIABLE
from samerun.control.too_late import environment_wanted


@click.command(
    "run",
    cls=ProgramCommand,
    options_metavar="[OPTIONS] SCRIPT [ARGS...]",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--seed", type=click.IntRange(0, LARGEST), default=0, show_default=True, metavar="N",
              help="Seed of every generator. What the program seeds itself, it seeds.")  # fmt: skip
@hold_options
@click.option("--unseeded", type=click.Choice(["ignore", "warn", "error"]), default="ignore", show_default=True,
              help="What to do when the program makes a generator without a seed.")  # fmt: skip
@click.option("--json", "json_to", metavar="FILE", help="Write what is set as JSON; - for standard output.")
@click.option("--quiet", is_flag=True, help="Do not say what is set.")
@click.pass_context
def command(ctx: click.Context, /, json_to: str | None, quiet: bool, **options: Any) -> None:
    """Run a program once with everything held still, from before its first line.

    The environment is set (hash seed, workspaces, threads), every generator is seeded, deterministic mode is
    in force as soon as torch is loaded: in the program and in every Python process it starts. Then samerun is
    gone: arguments, input, output, signals and exit code are the program's own. A variable that you set is
    kept; one that cannot hold the run still is an error (exit code 2).

    \b
    Examples:
      samerun run train.py --epochs 3
      samerun run --seed 7 --threads 4 train.py
      samerun run --unseeded error -m package.train
      samerun run -- torchrun --nproc-per-node 2 train.py
    """
    try:
        check_writable("--json", json_to)
        target = target_of(ctx)
        wanted = environment_wanted(options["threads"])
        if json_to is not None:
            write_result("--json", json_to, _as_json(target.shown, options, wanted))
    except SamerunError as error:
        click.echo(f"samerun: {error}", err=True)
        sys.exit(2)
    if not quiet:
        held = ", ".join(f"{name}={value}" for name, value in sorted(wanted.items()))
        click.echo(f"samerun: seed {options['seed']}, deterministic (level {options['level']}), {held}", err=True)
    held_still = {**os.environ, **wanted, VARIABLE: json.dumps(options, sort_keys=True)}
    become(list(target.command), with_bootstrap(held_still))


def _as_json(shown: tuple[str, ...], held: dict[str, Any], wanted: dict[str, str]) -> str:
    record = {
        "schema": 1,
        "samerun": __version__,
        "command": list(shown),
        "held": held,
        "environment": wanted,
    }
    return json.dumps(record, indent=2, sort_keys=True) + "\n"


def become(command: list[str], environment: dict[str, str]) -> NoReturn:
    """Be the program: same process, so that signals, the terminal and the exit code are its own."""
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "nt":  # there, exec would return to the shell before the program ends
        sys.exit(subprocess.call(command, env=environment))
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        click.echo(f"samerun: {command[0]} cannot be started: {error.strerror}.", err=True)
        sys.exit(2)
