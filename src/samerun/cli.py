"""The command line: collects each room's command. A command's module is loaded when it is used."""

from __future__ import annotations

import io
import os
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

import click

from samerun import __version__
from samerun.base.errors import SamerunError
from samerun.base.text import echo_escaped, escape_as_one_line

TRACEBACK = "SAMERUN_TRACEBACK"

COMMANDS = {
    "check": "samerun.commands.check",
    "run": "samerun.commands.run",
    "diff": "samerun.commands.diff",
    "verify": "samerun.commands.verify",
    "bisect": "samerun.commands.bisect",
    "log": "samerun.commands.log",
    "doctor": "samerun.commands.doctor",
    "cost": "samerun.commands.cost",
    "lint": "samerun.commands.lint",
}
"""Where each command stands, in the order of the help."""


class LazyCommandGroup(click.Group):
    """A group whose commands stand in modules of their own."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        module = COMMANDS.get(name)
        if module is None:
            return None
        command: click.Command = import_module(module).command
        return command


@click.group(cls=LazyCommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="samerun")
def samerun_group() -> None:
    """Run a PyTorch program again and get the same bits, or learn which operation differs first, why, and
    what to change.

    \b
    Examples:
      samerun check train.py                 is it reproducible, and if not, why?
      samerun check train.py --epochs 1      arguments after the script are the script's
      samerun check -- torchrun --nproc-per-node 2 train.py
      samerun run train.py                   one deterministic run: seeds, switches, environment
      samerun run --receipt a.json train.py  and a record of what it was and computed
      samerun diff a.json b.json             the first step that differs, and how the environments differ
      samerun verify --command a.json        run it again (asks first) and compare
      samerun bisect v1 HEAD -- train.py     which commit moved the results
      samerun log runs/                      the receipts of a folder
      samerun doctor train.py                what is set, what is not, and what to do
      samerun cost train.py                  what determinism costs it: time and memory per operator
      samerun lint .                         hazards in source, without running it
    """


def main() -> None:
    """Entry point. Exit codes: 0 same, 1 different, 2 trouble: also for whatever goes wrong in samerun itself."""
    try:
        _repair_standard_streams()
        try:
            samerun_group.main(standalone_mode=False)
        finally:
            sys.stdout.flush()  # here a full disk is trouble; when Python ends, it would be exit code 120
    except click.ClickException as error:
        with suppress(OSError):
            said = io.StringIO()
            error.show(said)
            echo_escaped(said.getvalue(), err=True, nl=False)
        _print_message_and_exit_with_2()
    except (click.Abort, KeyboardInterrupt):
        _print_message_and_exit_with_2("interrupted.")
    except BrokenPipeError:  # whoever read has gone, and wants to hear nothing
        _print_message_and_exit_with_2()
    except SamerunError as error:
        _print_message_and_exit_with_2(str(error))
    except MemoryError:
        _print_message_and_exit_with_2("not enough memory.")
    except OSError as error:
        file = f": {error.filename}" if error.filename is not None else ""
        where = "" if _working_folder_exists() else "The working directory is not there any more. "
        _print_message_and_exit_with_2(
            f"{where}{escape_as_one_line((error.strerror or str(error)) + file)}.\n  {TRACEBACK}=1 shows where."
        )
    except Exception as error:
        _print_message_and_exit_with_2(
            f"this is a bug in samerun: {escape_as_one_line(f'{type(error).__name__}: {error}')}\n"
            f"  Please report it. {TRACEBACK}=1 in the environment shows the traceback."
        )


def _working_folder_exists() -> bool:
    try:
        return bool(os.getcwd())
    except OSError:
        return False


def _print_message_and_exit_with_2(message: str = "") -> NoReturn:
    """End with exit code 2, whatever can still be written."""
    with suppress(OSError):
        if os.environ.get(TRACEBACK):
            traceback.print_exc()
        if message:
            echo_escaped(f"samerun: {message}", err=True)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # what is left in it would be tried again, and fail again, when Python ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(2)


def _repair_standard_streams() -> None:
    """A terminal may not know all characters, and a shell may have closed descriptors that files would then get."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number; closed again in every program that is started
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
