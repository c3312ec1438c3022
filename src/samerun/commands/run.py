"""`samerun run`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal, NoReturn

import click

from samerun import __version__
from samerun.base.errors import SamerunError
from samerun.base.files import (
    raise_if_existing_non_regular_file,
    require_output_safe_to_replace,
    write_to_file_or_stdout,
)
from samerun.base.program_command import FORM, ProgramCommand, raise_interrupt_on_term_or_hup, resolve_target_of_context
from samerun.base.target import Target, TargetForm
from samerun.base.text import echo_escaped
from samerun.commands.deterministic_options import add_deterministic_options
from samerun.control.determinism.survey import required_environment
from samerun.control.random_source import LARGEST_SEED
from samerun.control.startup.deterministic_start import make_launch_environment


@click.command(
    "run",
    cls=ProgramCommand,
    options_metavar="[OPTIONS] SCRIPT [ARGS...]",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--seed", type=click.IntRange(0, LARGEST_SEED), default=0, show_default=True, metavar="N",
              help="Seed of every generator. What the program seeds itself, it seeds.")  # fmt: skip
@add_deterministic_options
@click.option("--unseeded", type=click.Choice(["ignore", "warn", "error"]), default="ignore", show_default=True,
              help="What to do when the program makes a generator without a seed.")  # fmt: skip
@click.option("--receipt", metavar="FILE",
              help="Write what the run was and what it computed. A folder: into a new file there. Either may be an "
              "address that fsspec knows (s3://).")  # fmt: skip
@click.option("--trace", type=click.Choice(["steps", "ops"]), default="steps", show_default=True,
              help="ops: keep every operator beside the receipt, so that samerun diff can name it.")  # fmt: skip
@click.option("--key", metavar="FILE", help="Sign the receipt with this Ed25519 private key (PEM).")
@click.option("--redact", multiple=True, metavar="PATTERN",
              help="Leave the values of variables and options with such a name out of the receipt, beside those that "
              "look secret (*token*, *key*, ...); also host and folder.")  # fmt: skip
@click.option("--json", "json_to", metavar="FILE", help="Write what is set as JSON; - for standard output.")
@click.option("--quiet", is_flag=True, help="Do not say what is set.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    json_to: str | None,
    quiet: bool,
    receipt: str | None,
    trace: Literal["steps", "ops"],
    key: str | None,
    redact: tuple[str, ...],
    **options: Any,
) -> None:
    """Run a program once with everything held still, from before its first line.

    The environment is set (hash seed, workspaces, threads), every generator is seeded, deterministic mode is
    in force as soon as torch is loaded: in the program and in every Python process it starts. Arguments, input,
    output, signals and exit code are the program's own. A variable that you set is kept; one that cannot hold
    the run still is an error (exit code 2). With --receipt, a record is written when the program has ended,
    however it ended; samerun diff and samerun verify compare such records.

    \b
    Examples:
      samerun run train.py --epochs 3
      samerun run --seed 7 --threads 4 train.py
      samerun run --receipt run.json train.py
      samerun run --unseeded error -m package.train
      samerun run -- torchrun --nproc-per-node 2 train.py
    """
    try:
        require_output_safe_to_replace("--json", json_to)
        if receipt is None and (trace != "steps" or key is not None or redact):
            option = "--key" if key is not None else "--redact" if redact else "--trace ops"
            raise SamerunError(f"{option} needs --receipt.", hint="Try: samerun run --receipt run.json train.py")
        target = resolve_target_of_context(ctx)
        if key is not None:
            _require_loadable_key(key)
        wanted = required_environment(options["threads"])
        to = _resolve_receipt_destination(receipt, target) if receipt is not None else None
        if json_to is not None:
            write_to_file_or_stdout("--json", json_to, _describe_run_as_json(target.shown, options, wanted))
    except SamerunError as error:
        echo_escaped(f"samerun: {error}", err=True)
        sys.exit(2)
    if not quiet:
        held = ", ".join(f"{name}={value}" for name, value in sorted(wanted.items()))
        echo_escaped(f"samerun: seed {options['seed']}, deterministic (level {options['level']}), {held}", err=True)
    environment = make_launch_environment(os.environ, wanted, options)
    if to is None:
        exec_program(list(target.command), environment)
    run_program_with_receipt_and_exit(target, ctx.meta[FORM], to, trace, key, environment, options, redact)


def _describe_run_as_json(user_argv: tuple[str, ...], settings: dict[str, Any], environment: dict[str, str]) -> str:
    record = {
        "schema": 1,
        "samerun": __version__,
        "command": list(user_argv),
        "held": settings,
        "environment": environment,
    }
    return json.dumps(record, indent=2, sort_keys=True) + "\n"


def _resolve_receipt_destination(text: str, target: Target) -> Path | str:
    """The file that is meant, or the address. Raises SamerunError before anything runs, where it could not be
    written later."""
    from samerun.record.receipt import remote
    from samerun.record.receipt.index import create_folder_and_make_receipt_path, make_receipt_name
    from samerun.record.receipt.remote import is_remote_address

    if is_remote_address(text):
        if remote.require_existing_bucket_and_check_is_folder(text):
            return f"{text.rstrip('/')}/{make_receipt_name(target.shown)}"
        return text
    if text.endswith(os.sep) or os.path.isdir(text):
        file = create_folder_and_make_receipt_path(Path(text), target.shown)
        require_output_safe_to_replace("--receipt", str(file))
        return file
    raise_if_existing_non_regular_file(Path(text))
    require_output_safe_to_replace("--receipt", text)
    # the program may change the working directory of nobody but itself
    return Path(os.path.realpath(text))


def _require_loadable_key(key_file: str) -> None:
    from samerun.record.receipt.receipt_file import load_ed25519_private_key

    load_ed25519_private_key(Path(key_file))


def run_program_with_receipt_and_exit(
    target: Target, form: TargetForm, destination: Path | str, trace: Literal["steps", "ops"], key: str | None,
    environment: dict[str, str], held_settings: dict[str, Any], redact: tuple[str, ...] = (),
) -> NoReturn:  # fmt: skip
    """Run the program beside this process, write its receipt to a file or an address, and end as it ended."""
    from samerun.base.supervise import exit_as_program_did
    from samerun.control.determinism.survey import collect_facts_outside_program
    from samerun.record.receipt.remote import upload_on_success
    from samerun.record.receipt.watched_run import RunRequest, run_and_write_receipt

    sys.stdout.flush()
    sys.stderr.flush()
    raise_interrupt_on_term_or_hup()  # while the program runs, it gets the signal instead
    request = RunRequest(
        target, form, __version__, held_settings, environment, collect_facts_outside_program(), trace, redact
    )
    try:
        with upload_on_success(destination) if isinstance(destination, str) else nullcontext(destination) as file:
            ended, _ = run_and_write_receipt(request, file, Path(key) if key is not None else None)
    except SamerunError as error:
        echo_escaped(f"samerun: {error}", err=True)
        sys.exit(2)
    exit_as_program_did(ended)


def exec_program(command: list[str], environment: dict[str, str]) -> NoReturn:
    """Be the program: same process, so that signals, the terminal and the exit code are its own."""
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "nt":  # there, exec would return to the shell before the program ends
        sys.exit(subprocess.call(command, env=environment))
    from samerun.base.supervise import signals_python_ignores

    for number in signals_python_ignores():
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        echo_escaped(f"samerun: {command[0]} cannot be started: {error.strerror}.", err=True)
        sys.exit(2)
