"""`samerun log`. A face: brings the index of receipts and its report together."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from samerun import __version__
from samerun.base.errors import SamerunError
from samerun.base.files import require_output_safe_to_replace, write_to_file_or_stdout
from samerun.base.records import EXIT_CODES
from samerun.base.text import echo_escaped


@click.command("log", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", default=".")
@click.option(
    "--command", "command_filter", default="", metavar="TEXT", help="Only receipts whose command contains this."
)
@click.option("--limit", type=click.IntRange(0, (1 << 63) - 1), default=20, show_default=True, metavar="N",
              help="The newest N; 0: all.")  # fmt: skip
@click.option("--last", is_flag=True, help="Print the path of the newest one, and nothing else.")
@click.option("--diff", "compare", is_flag=True, help="Compare the two newest: exit code 0 same, 1 different.")
@click.option("--json", "json_to", metavar="FILE", help="Write the list, or the comparison, as JSON; - for standard "
              "output.")  # fmt: skip
@click.option("--quiet", is_flag=True, help="No human-readable report.")
def command(
    folder: str, command_filter: str, limit: int, last: bool, compare: bool, json_to: str | None, quiet: bool
) -> None:
    """The receipts of a folder, the newest last.

    samerun run --receipt FOLDER/ puts a new one there. An index in the folder keeps the list fast; it can be
    deleted at any time, and a first listing that was broken off goes on. FOLDER may be an address that fsspec
    knows (memory://, s3://): receipts are then read from there, without an index.

    \b
    Examples:
      samerun log runs/
      samerun log --command train.py --last runs/
      samerun log --command train.py --diff runs/
    """
    try:
        code = list_or_compare_receipts(folder, command_filter, limit, last, compare, json_to, quiet)
    except SamerunError as error:
        echo_escaped(f"samerun: {error}", err=True)
        sys.exit(2)
    sys.exit(code)


def list_or_compare_receipts(
    folder: str, command_filter: str, limit: int, last: bool, compare: bool, json_to: str | None, quiet: bool
) -> int:
    """List or compare the receipts of a folder; returns the exit code."""
    from samerun.record.receipt import remote
    from samerun.record.receipt.index import update_and_list_receipts
    from samerun.report.progress import CountProgress

    require_output_safe_to_replace("--json", json_to)
    wanted = (1 if last else 2) if last or compare else limit or None
    with (
        CountProgress("looking at files", quiet) as scan_progress,
        CountProgress("reading receipts", quiet) as progress,
    ):
        if remote.is_remote_address(folder):
            found = remote.list_remote_receipts(folder, command_filter, wanted, progress)
        else:
            found = update_and_list_receipts(Path(folder), command_filter, wanted, progress, scan_progress)
    if last or compare:
        found = [one for one in found if not one.problem]
        if len(found) < (wanted or 0):
            of = f" of a command with {command_filter!r}" if command_filter else ""
            raise SamerunError(
                f"{folder} holds {len(found)} receipt{'' if len(found) == 1 else 's'}{of}; {wanted} needed.",
                hint=f"Record another run: samerun run --receipt {folder} train.py",
            )
    if last:
        path = remote.join_path_or_address(folder, found[-1].file)
        if sys.stdout.isatty():
            echo_escaped(path)
        else:
            click.echo(path)  # for a program, which has to find the file under its own name
        return 0
    if compare:
        return _diff_and_report_receipts(folder, found[-2].file, found[-1].file, json_to, quiet)
    if json_to is not None:
        record = {"schema": 1, "samerun": __version__, "receipts": [vars(one) for one in found]}
        write_to_file_or_stdout("--json", json_to, json.dumps(record, indent=1, sort_keys=True) + "\n")
    if not quiet and json_to != "-":
        from samerun.report.receipts import format_receipt_log

        echo_escaped("\n".join(format_receipt_log([vars(one) for one in found])))
    return 0


def _diff_and_report_receipts(folder: str, file_a: str, file_b: str, json_to: str | None, quiet: bool) -> int:
    from samerun.record.receipt import remote
    from samerun.record.receipt.diff import diff_runs, load_run
    from samerun.record.receipt.remote import download_if_remote
    from samerun.report.output import write_json_and_show_unless_to_stdout
    from samerun.report.receipts import show_diff

    names = remote.join_path_or_address(folder, file_a), remote.join_path_or_address(folder, file_b)
    with download_if_remote(names[0]) as one, download_if_remote(names[1]) as other:
        compared = diff_runs(load_run(one, names[0]), load_run(other, names[1]))
    record: dict[str, Any] = {"schema": 1, "samerun": __version__, **compared}
    write_json_and_show_unless_to_stdout(record, show_diff, json_to, quiet)
    return EXIT_CODES[record["verdict"]]
