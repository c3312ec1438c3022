"""`samerun doctor`. A face: brings the survey of the switches and its report together."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from samerun import __version__
from samerun.base.errors import SamerunError
from samerun.base.files import require_output_safe_to_replace
from samerun.base.launch import prepend_bootstrap_to_pythonpath
from samerun.base.native import find_unloadable_libraries
from samerun.base.program_command import (
    FORM,
    ProgramCommand,
    raise_interrupt_on_term_or_hup,
    resolve_target_of_context,
)
from samerun.base.text import echo_escaped
from samerun.base.work_folder import guarded_work_folder
from samerun.commands.deterministic_options import add_deterministic_options
from samerun.control.startup.survey_probe import AT_END, VARIABLE

FINDINGS = ("differs", "too late")


@click.command(
    "doctor",
    cls=ProgramCommand,
    options_metavar="[OPTIONS] [SCRIPT [ARGS...]]",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@add_deterministic_options
@click.option("--all", "everything", is_flag=True, help="Show the switches that are only recorded, too.")
@click.option("--time-limit", type=click.FloatRange(0, min_open=True), metavar="S",
              help="Seconds the program may take to its first optimizer step.")  # fmt: skip
@click.option("--snippet", is_flag=True, help="Print the lines to put into a program, and nothing else.")
@click.option("--numerics", is_flag=True, help="Compute the conformance vectors of portable() on this machine instead.")
@click.option("--json", "json_to", metavar="FILE", help="Write the findings as JSON; - for standard output.")
@click.option("--quiet", is_flag=True, help="No human-readable table.")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Every setting on which bits depend: wanted, in force, when it can be set, who set it.

    Without a program: for Python as it starts in this shell. With one: the program runs up to the end of its
    first optimizer step, the settings are read there, inside it, and it is ended. Exit code 0: everything is
    as it should be. 1: findings. 2: trouble.

    With --numerics: whether the kernels behind samerun.portable() give the specified bits on this machine.

    \b
    Examples:
      samerun doctor
      samerun doctor train.py --epochs 1
      samerun doctor --json - -- torchrun --nproc-per-node 2 train.py
      samerun doctor --snippet
      samerun doctor --numerics
    """
    if options.pop("snippet"):
        echo_escaped(SNIPPET, nl=False)
        return
    raise_interrupt_on_term_or_hup()
    try:
        numerics = options.pop("numerics")
        code = (
            verify_numerics_and_report(ctx, options["json_to"], options["quiet"])
            if numerics
            else survey_and_report(ctx, **options)
        )
    except SamerunError as error:
        echo_escaped(f"samerun: {error}", err=True)
        sys.exit(2)
    sys.exit(code)


def survey_and_report(
    ctx: click.Context,
    *,
    everything: bool,
    time_limit: float | None,
    json_to: str | None,
    quiet: bool,
    **policy: Any,
) -> int:
    """Look at the switches of a program, or of this process where none is named; returns the exit code.

    everything: show those that are as they should be, too.
    """
    require_output_safe_to_replace("--json", json_to)
    if ctx.meta[FORM]:
        target = resolve_target_of_context(ctx)
        seen = read_settings_at_first_optimizer_step_or_end(list(target.command), policy, time_limit)
        seen["program"] = list(target.shown)
    else:
        seen = import_torch_and_survey_this_process(policy)
        seen["program"] = None
    findings = [one for one in seen["switches"] if one["verdict"] in FINDINGS]
    missing = {"missing_libraries": find_unloadable_libraries()}
    record = {"schema": 1, "samerun": __version__, "verdict": "findings" if findings else "clean", **seen, **missing}
    from samerun.report.doctor import show_switches
    from samerun.report.output import write_json_and_show_unless_to_stdout

    write_json_and_show_unless_to_stdout(
        record, lambda told, console: show_switches(told, console, everything), json_to, quiet
    )
    return 1 if findings else 0


def verify_numerics_and_report(ctx: click.Context, json_to: str | None, quiet: bool) -> int:
    """The conformance vectors, computed here. Returns the exit code; raises SamerunError without torch."""
    if ctx.meta[FORM]:
        raise SamerunError(
            "--numerics looks at this machine, and runs no program.",
            hint="Leave the program out. To test a program: samerun check --vary all train.py",
        )
    require_output_safe_to_replace("--json", json_to)
    if importlib.util.find_spec("torch") is None:
        raise SamerunError("--numerics: torch is not installed.", hint="pip install torch")
    from samerun.numerics.verification.conformance import survey_conformance
    from samerun.report.progress import CountProgress

    with CountProgress("conformance vectors", quiet) as counter:
        seen = survey_conformance(counter)
    wrong = seen["different"] or any(device["different"] for device in seen["cuda"])
    verdict = "findings" if wrong else "clean"
    record = {"schema": 1, "samerun": __version__, "verdict": verdict, "numerics": seen}
    from samerun.report.doctor import show_numerics
    from samerun.report.output import write_json_and_show_unless_to_stdout

    write_json_and_show_unless_to_stdout(record, show_numerics, json_to, quiet)
    return 1 if wrong else 0


def import_torch_and_survey_this_process(policy: dict[str, Any]) -> dict[str, Any]:
    """The settings of this very process, with torch loaded where it is installed."""
    if importlib.util.find_spec("torch") is not None:
        importlib.import_module("torch")
    from samerun.base.machine import collect_machine_facts
    from samerun.control.determinism.survey import survey

    return {
        "read_at": "start",
        "switches": [asdict(one) for one in survey(**policy)],
        "machine": collect_machine_facts(),
    }


def read_settings_at_first_optimizer_step_or_end(
    command: list[str], policy: dict[str, Any], time_limit: float | None
) -> dict[str, Any]:
    """The settings inside a program, at its first optimizer step or, without one, at its end.

    Raises SamerunError if the program fails before that, or takes longer than `time_limit` seconds.
    """
    with guarded_work_folder() as folder:
        answer, said = folder / "answer.json", folder / "stderr"
        asked = json.dumps({"answer": str(answer), "policy": policy})
        environment = prepend_bootstrap_to_pythonpath({**os.environ, VARIABLE: asked})
        with open(said, "wb") as errors:
            try:
                process = subprocess.Popen(
                    command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
                    start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise SamerunError(
                    f"{command[0]} cannot be started: {error.strerror}.", hint="Is it installed and on PATH?"
                ) from error
            code = _wait_for_answer_file_or_exit_and_kill_group(process, answer, time_limit)
        if code == 0 and not answer.exists():
            answer = answer.with_suffix(AT_END)
        if answer.exists():
            seen: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
            return seen
        text = said.read_text(encoding="utf-8", errors="replace").rstrip()
    if text:
        echo_escaped(f"--- the program's standard error ---\n{text}\n---", err=True)
    if code is None:
        raise SamerunError(
            f"The program took longer than {time_limit:g} s and made no optimizer step.",
            hint="Give it more with --time-limit.",
        )
    raise SamerunError(
        f"The program ended with exit code {code} before its settings could be read.",
        hint="Does it work without samerun? And is samerun installed for the Python that runs it?",
    )


def _wait_for_answer_file_or_exit_and_kill_group(
    process: subprocess.Popen[bytes], answer_file: Path, time_limit: float | None
) -> int | None:
    """Until there is an answer or the program has ended; leaves no process behind.

    The exit code; None if it was ended. Of several ranks the others may wait for the one that has answered.
    """
    end = None if time_limit is None else time.monotonic() + time_limit
    try:
        while process.poll() is None and not answer_file.exists():
            if end is not None and time.monotonic() > end:
                return None
            time.sleep(0.02)
        return process.poll()
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        process.wait()


SNIPPET = """\
# At the top of the program, before anything draws random numbers:
import samerun

samerun.deterministic(0)  # seeds every generator; deterministic algorithms; float32 in float32

# Generators of your own take a seed each; samerun.stream(name) has them ready and apart from each other:
#   rng = samerun.stream("augment").numpy

# Start it with `samerun run train.py`, or with what has to be set before Python starts:
#   PYTHONHASHSEED=0 CUBLAS_WORKSPACE_CONFIG=:4096:8 python train.py
# See that it holds: samerun check train.py
"""
