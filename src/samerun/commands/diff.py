"""`samerun diff`. A face: brings the comparison of receipts and its report together."""

from __future__ import annotations

import sys
from typing import Any

import click

from samerun import __version__
from samerun.base.errors import SamerunError
from samerun.base.files import require_output_safe_to_replace
from samerun.base.records import EXIT_CODES
from samerun.base.text import echo_escaped


@click.command("diff", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("a")
@click.argument("b")
@click.option("--ignore-output", multiple=True, metavar="GLOB", help="Output files that do not count: logs with times.")
@click.option("--json", "json_to", metavar="FILE", help="Write the answer as JSON; - for standard output.")
@click.option("--quiet", is_flag=True, help="No human-readable report.")
def command(a: str, b: str, json_to: str | None, quiet: bool, ignore_output: tuple[str, ...]) -> None:
    """Compare two runs: the first step that differs, then the operator, then how their environments differ.

    A and B are receipts of samerun run --receipt, also at an address that fsspec knows (s3://bucket/a.json), or
    folders of traces (samerun check --save). The operator is named only if both runs used --trace ops.
    Exit code 0: same. 1: different. 2: trouble.

    \b
    Examples:
      samerun diff monday.json tuesday.json
      samerun diff --json - a.json b.json
      samerun diff --ignore-output '*.log' a.json b.json
      samerun diff saved/control-1 saved/varied
      samerun diff s3://bucket/runs/a.json b.json
    """
    from samerun.report.output import write_json_and_show_unless_to_stdout
    from samerun.report.receipts import show_diff

    try:
        record = compare_receipts_or_traces(a, b, ignore_output, json_to)
        write_json_and_show_unless_to_stdout(record, show_diff, json_to, quiet)
    except SamerunError as error:
        echo_escaped(f"samerun: {error}", err=True)
        sys.exit(2)
    sys.exit(EXIT_CODES[record["verdict"]])


def compare_receipts_or_traces(
    a: str, b: str, ignored_output_globs: tuple[str, ...], json_path_to_check: str | None
) -> dict[str, Any]:
    """The result of the comparison, as it is written with --json."""
    from samerun.record.receipt.diff import diff_runs, load_run
    from samerun.record.receipt.remote import download_if_remote

    require_output_safe_to_replace("--json", json_path_to_check)
    with download_if_remote(a) as one, download_if_remote(b) as other:
        found = diff_runs(load_run(one, a), load_run(other, b), ignored_output_globs)
    return {"schema": 1, "samerun": __version__, **found}
