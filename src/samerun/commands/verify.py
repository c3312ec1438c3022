"""`samerun verify`. A face: brings receipts, the facts about this machine, and the report together."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from samerun import __version__
from samerun.base.errors import SamerunError
from samerun.base.files import require_output_safe_to_replace
from samerun.base.program_command import FORM, WORDS, ProgramCommand, raise_interrupt_on_term_or_hup
from samerun.base.records import EXIT_CODES
from samerun.base.target import Target, resolve_target
from samerun.base.text import echo_escaped, escape_as_one_line
from samerun.base.work_folder import temporary_work_folder
from samerun.commands.step_verification import verify_step


@click.command(
    "verify",
    cls=ProgramCommand,
    options_metavar="[OPTIONS] RECEIPT [-- COMMAND...] | --step K [--on OTHER] SCRIPT [ARGS...]",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--command", "ask", is_flag=True, help="Show the recorded command, ask, and run it.")
@click.option("--yes", is_flag=True, help="Run the recorded command without asking: you trust the receipt.")
@click.option("--signed-by", metavar="KEY", help="Refuse the receipt unless it is signed by this public key (hex).")
@click.option("--ignore-output", multiple=True, metavar="GLOB", help="Output files that do not count: logs with times.")
@click.option("--step", metavar="K", help="Recompute one step saved by guard(keep=True), given by number or file.")
@click.option("--on", metavar="OTHER", help="With --step: the Python that computes it, or a command in front of one.")
@click.option("--json", "json_to", metavar="FILE", help="Write the answer as JSON; - for standard output.")
@click.option("--quiet", is_flag=True, help="No human-readable report.")
@click.pass_context
def command(ctx: click.Context, /, json_to: str | None, quiet: bool, **options: Any) -> None:
    """Run again from a receipt, here and now, and compare what is computed.

    Nothing is checked out or downloaded. What of the recorded circumstances cannot be met here is said first. A
    receipt is data: its command runs only with --command (asks) or --yes; or name the command yourself behind
    --. The program's output goes to standard error. Exit code 0: same. 1: different. 2: trouble, or nothing was
    run.

    \b
    Examples:
      samerun verify run.json
      samerun verify --command run.json
      samerun verify --yes --json - run.json
      samerun verify run.json -- python train.py --epochs 3
      samerun verify --command s3://bucket/runs/run.json
      samerun verify --step 101 --on "ssh node7 /venv/bin/python" train.py
    """
    from samerun.record.receipt.remote import download_if_remote
    from samerun.report.output import write_json_and_show_unless_to_stdout
    from samerun.report.receipts import show_step_verification, show_verification

    raise_interrupt_on_term_or_hup()
    step, other = options.pop("step"), options.pop("on")
    try:
        if step is not None:
            require_output_safe_to_replace("--json", json_to)
            record = verify_step(step, other, ctx.meta[FORM], ctx.meta[WORDS])
            write_json_and_show_unless_to_stdout(record, show_step_verification, json_to, quiet)
            sys.exit(EXIT_CODES[record["verdict"]])
        if other is not None:
            raise SamerunError("--on OTHER says where a step is computed.", hint="Say which: --step K.")
        text, own = _parse_receipt_and_target(ctx)
        with download_if_remote(text) as path:
            record = verify_receipt(path, text, own, json_path_to_check=json_to, quiet=quiet, **options)
        write_json_and_show_unless_to_stdout(record, show_verification, json_to, quiet)
    except SamerunError as error:
        echo_escaped(f"samerun: {error}", err=True)
        sys.exit(2)
    sys.exit(EXIT_CODES[record["verdict"]])


def _parse_receipt_and_target(ctx: click.Context) -> tuple[str, Target | None]:
    """The receipt is where other commands have the script; a command may follow --."""
    form, words = ctx.meta[FORM], ctx.meta[WORDS]
    if form != "script":
        raise SamerunError("No receipt given.", hint="Try: samerun verify run.json")
    if len(words) == 1:
        return words[0], None
    if words[1] != "--":
        raise SamerunError(
            f"Unexpected argument after the receipt: {escape_as_one_line(words[1])}.",
            hint="Put options before the receipt, and a command after --: samerun verify run.json -- python train.py",
        )
    return words[0], resolve_target("command", words[2:])


def verify_receipt(
    path: Path,
    name: str,
    user_command: Target | None,
    *,
    ask: bool,
    yes: bool,
    signed_by: str | None,
    ignore_output: tuple[str, ...],
    json_path_to_check: str | None,
    quiet: bool,
) -> dict[str, Any]:
    """Verify a receipt and return the record of the result. `path`: a local copy; `name`: how the user calls it."""
    from samerun.control.determinism.survey import collect_facts_outside_program
    from samerun.record.receipt import receipt_file, recorded_command
    from samerun.record.receipt.diff import load_run
    from samerun.record.receipt.environment_diff import list_environment_differences_here
    from samerun.record.receipt.step_table import require_rows_match_trees

    require_output_safe_to_replace("--json", json_path_to_check)
    if os.path.isdir(path):
        raise SamerunError(f"{name} is a folder.", hint="Name a receipt: a file.")
    recorded = load_run(path, name)
    assert recorded.receipt is not None
    require_rows_match_trees(recorded.tables)
    receipt, now = recorded.receipt, collect_facts_outside_program()
    shown_command = recorded_command.format_command_line_truncating_words(receipt["command"])
    record: dict[str, Any] = {
        "schema": 1,
        "samerun": __version__,
        "verdict": "trouble",
        "receipt": name,
        "command": shown_command,
        "signed_by": receipt_file.verify_signature_of_digest(receipt, signed_by),
        "unmet": list_environment_differences_here(receipt, now),
        "ran": False,
        "tier": None,
        "notes": [],
    }
    if user_command is None:
        if not (yes or ask):
            record["notes"].append("Nothing was run. --command shows the recorded command and asks; --yes runs it.")
            return record
        user_command = recorded_command.resolve_recorded_command(receipt["command"])
        if not yes and not _ask_user_whether_to_run(recorded_command.format_whole_command_line(receipt["command"])):
            record["notes"].append("Nothing was run.")
            return record
    elif receipt["command"]["form"] == "code":
        user_command = replace(user_command, shown=tuple(receipt["command"]["words"]))
    return {**record, **rerun_and_compare_with_receipt(path, recorded, user_command, now, ignore_output), "ran": True}


def _ask_user_whether_to_run(command: str) -> bool:
    """Ask the user. Raises SamerunError if standard input is not a terminal."""
    if not sys.stdin.isatty():
        raise SamerunError(
            f"--command asks before it runs {command}, and standard input is not a terminal.",
            hint="--yes runs it without asking: say so if you trust the receipt. Or name the command behind --.",
        )
    return click.confirm(f"The receipt's command is: {command}\nRun it?", err=True)


def rerun_and_compare_with_receipt(
    receipt_path: Path,
    recorded_run: Any,
    target: Target,
    current_facts: dict[str, Any],
    ignored_output_globs: tuple[str, ...],
) -> dict[str, Any]:
    """Run the program with the settings of the recorded run, and compare the two."""
    from samerun.control.determinism.survey import required_environment
    from samerun.control.startup.deterministic_start import make_launch_environment
    from samerun.receipt_block import FOLDER_VARIABLE
    from samerun.record.receipt.diff import diff_runs, load_run, wrap_new_run
    from samerun.record.receipt.environment_diff import TIERS, EnvironmentDifference, find_tested_tier
    from samerun.record.receipt.recorded_command import select_allowlisted_variables
    from samerun.record.receipt.watched_run import RunRequest, run_and_write_receipt

    receipt = recorded_run.receipt
    in_code = receipt["command"]["form"] == "code"
    environment = {**os.environ, **select_allowlisted_variables(receipt["variables"])}
    if receipt["held"] is not None:
        wanted = required_environment(receipt["held"]["threads"])
        environment = make_launch_environment(environment, {n: v for n, v in wanted.items() if n not in environment},
                                       receipt["held"])  # fmt: skip
    with temporary_work_folder() as folder:
        if in_code:
            environment[FOLDER_VARIABLE] = str(folder)
        request = RunRequest(
            target,
            receipt["command"]["form"],
            __version__,
            receipt["held"],
            environment,
            current_facts,
            stdout=sys.stderr,
        )
        ended, made = run_and_write_receipt(request, None)
        expected = receipt["ended"]
        if ended.exit_code != expected["exit_code"] and not (
            in_code and (ended.exit_code == 0 or _receipt_block_raised(expected))
        ):
            how = f"signal {ended.signal}" if ended.signal is not None else f"exit code {ended.exit_code}"
            raise SamerunError(f"The program ended with {how}; recorded is {_describe_ending(expected)}.",
                               hint="Does it work here without samerun?")  # fmt: skip
        if in_code:
            side = replace(load_run(_find_receipt_written_by_program(folder, receipt_path.name)), name="this run")
        else:
            # How the user spells the command is not a difference of the program.
            side = wrap_new_run("this run", replace(made, receipt={**made.receipt, "command": receipt["command"]}))
        told = diff_runs(recorded_run, side, ignored_output_globs)
    told.pop("a"), told.pop("b")
    tier = find_tested_tier([EnvironmentDifference(**each) for each in told["surroundings"]])
    return {**told, "tier": {"name": tier, "what": TIERS[tier]}}


def _receipt_block_raised(recorded_end: dict[str, Any]) -> bool:
    return recorded_end.get("exception") is not None


def _describe_ending(recorded_end: dict[str, Any]) -> str:
    if recorded_end["signal"] is not None:
        return f"signal {recorded_end['signal']}"
    return f"exit code {recorded_end['exit_code'] if recorded_end['exit_code'] is not None else 0}"


def _find_receipt_written_by_program(folder: Path, name: str) -> Path:
    """The receipt that the program itself wrote in this run."""
    found = sorted(folder.glob("*.json"))
    for each in found:
        if each.name == name or len(found) == 1:
            return each
    raise SamerunError(
        f"The program wrote no receipt named {name}, but {', '.join(p.name for p in found) or 'none at all'}.",
        hint="Verify it under the name that the program gave it.",
    )
