"""`samerun cost`."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from samerun import __version__
from samerun.base.errors import SamerunError
from samerun.base.files import require_output_safe_to_replace, write_to_file_or_stdout
from samerun.base.program_command import ProgramCommand, raise_interrupt_on_term_or_hup, resolve_target_of_context
from samerun.base.text import echo_escaped
from samerun.base.work_folder import guarded_work_folder


@click.command(
    "cost",
    cls=ProgramCommand,
    options_metavar="[OPTIONS] SCRIPT [ARGS...]",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--repeat", default=3, show_default=True, type=click.IntRange(1, 1000), metavar="N",
              help="Runs of each kind; the report shows medians.")  # fmt: skip
@click.option("--max-steps", type=click.IntRange(1), metavar="N", help="End each run after N optimizer steps.")
@click.option("--time-limit", type=click.FloatRange(0, min_open=True), metavar="S", help="Seconds a run may take.")
@click.option("--top", default=15, show_default=True, type=click.IntRange(1), metavar="N",
              help="How many operators the table shows; the JSON has all.")  # fmt: skip
@click.option("--json", "json_to", metavar="FILE", help="Write the numbers as JSON; - for standard output.")
@click.option("--html", "html_to", metavar="FILE", help="Write the numbers as one HTML file.")
@click.option("--quiet", is_flag=True, help="No progress, no human-readable table.")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """What determinism costs this program: as it is, as samerun run runs it, and inside portable().

    The three take turns in fresh processes, N times each. Then they do so N times more with a clock around every
    operator, which takes time itself: those runs are used only for the table of operators. Exit code
    0: all three were measured. 1: the program does not run under one of them. 2: trouble.

    \b
    Examples:
      samerun cost train.py
      samerun cost --max-steps 20 train.py --epochs 1
      samerun cost --repeat 5 --json cost.json --html cost.html -m package.train
    """
    raise_interrupt_on_term_or_hup()
    try:
        code = measure_and_report_cost(ctx, **options)
    except SamerunError as error:
        echo_escaped(f"samerun: {error}", err=True)
        sys.exit(2)
    sys.exit(code)


def measure_and_report_cost(
    ctx: click.Context, *, json_to: str | None, html_to: str | None, quiet: bool, top: int, **options: Any
) -> int:
    """Measure the program and write the report; returns the exit code."""
    from samerun.base.machine import collect_machine_facts
    from samerun.check.execution.cost import PLAIN, CostMeasurement
    from samerun.control.startup.deterministic_start import make_deterministic_run_variables
    from samerun.numerics.dispatch.portable import PORTABLE_VARIABLE
    from samerun.report.progress import RunProgress

    require_output_safe_to_replace("--json", json_to)
    require_output_safe_to_replace("--html", html_to)
    target = resolve_target_of_context(ctx)
    settings = {PLAIN: {}, "deterministic": make_deterministic_run_variables(0), "portable": {PORTABLE_VARIABLE: "1"}}
    with guarded_work_folder() as folder, RunProgress(quiet) as progress:
        report = CostMeasurement(
            target, folder, settings, progress=progress, **options
        ).measure_whole_runs_then_operators()
    if not quiet and json_to != "-":
        from samerun.report.cost import show_cost
        from samerun.report.terminal import ReportConsole

        show_cost(report, ReportConsole(), top)
    if json_to is not None:
        record = report.to_dict(__version__, collect_machine_facts())
        write_to_file_or_stdout("--json", json_to, json.dumps(record, indent=2, allow_nan=False) + "\n")
    if html_to is not None:
        from samerun.report.cost import cost_to_html

        write_to_file_or_stdout("--html", html_to, cost_to_html(report, __version__, collect_machine_facts(), top))
    return report.exit_code
