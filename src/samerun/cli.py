"""The command line: collects each room's command. A command's module is loaded when it is used."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from samerun import __version__

COMMANDS = {
    "check": "samerun.check.command",
    "run": "samerun.control.run_command",
    "diff": "samerun.record.diff_command",
    "verify": "samerun.record.verify_command",
    "log": "samerun.record.log_command",
    "doctor": "samerun.control.doctor_command",
    "cost": "samerun.check.cost_command",
}
"""Where each command stands, in the order of the help."""


class Rooms(click.Group):
    """A group whose commands stand in modules of their own."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        module = COMMANDS.get(name)
        if module is None:
            return None
        command: click.Command = import_module(module).command
        return command


@click.group(cls=Rooms, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="samerun")
def group() -> None:
    """Run a PyTorch program again and get the same bits, or learn where, why and what to change.

    \b
    Examples:
      samerun check train.py                 is it reproducible, and if not, why?
      samerun check train.py --epochs 1      arguments after the script are the script's
      samerun check -- torchrun --nproc-per-node 2 train.py
      samerun run train.py                   once, with everything held still
      samerun run --receipt a.json train.py  and a record of what it was and computed
      samerun diff a.json b.json             the first step that differs, and what differs around it
      samerun verify a.json                  run it again and compare
      samerun log runs/                      the receipts of a folder
      samerun doctor train.py                what is set, what is not, and what to do
      samerun cost train.py                  what determinism costs it: time and memory per operator
    """


def main() -> None:
    """Entry point. Exit codes: 0 same, 1 different, 2 trouble."""
    try:
        group.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("samerun: interrupted.", err=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(2)
