"""`samerun check`."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from samerun import __version__
from samerun.base.errors import SamerunError
from samerun.base.files import require_output_safe_to_replace, write_to_file_or_stdout
from samerun.base.guard import kill_marked_processes_on_death
from samerun.base.native import MISSING_IN_ONE_LINE, find_unloadable_libraries
from samerun.base.program_command import FORM, WORDS, ProgramCommand, raise_interrupt_on_term_or_hup
from samerun.base.target import Target, TargetForm, resolve_target
from samerun.base.text import echo_escaped
from samerun.base.work_folder import guarded_work_folder
from samerun.control.random_source import LARGEST_SEED

if TYPE_CHECKING:
    from samerun.base.records import CheckReport
    from samerun.check.execution.interruption import Interruption
    from samerun.check.execution.runner import Runner
    from samerun.check.plan import RunPlan, Variation
    from samerun.check.search.findings import IgnoreRule, SamerunRunPlan
    from samerun.check.search.search import Search
    from samerun.check.variations.neutral_switches import NeutralSwitch
    from samerun.report.progress import RunProgress


@click.command(
    "check",
    cls=ProgramCommand,
    options_metavar="[OPTIONS] SCRIPT [ARGS...]",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--vary", default="rerun,environment", show_default=True, metavar="LIST",
              help="Names of variations or groups; all; none.")  # fmt: skip
@click.option("--repeat", default=2, show_default=True, type=click.IntRange(2, 1000), metavar="N",
              help="Number of unvaried runs; raise it to catch rare differences. With 2, the run with everything varied"
              " stands for the second one if nothing differs.")  # fmt: skip
@click.option("--max-steps", type=click.IntRange(1), metavar="N", help="End each run after N optimizer steps.")
@click.option("--time-limit", type=click.FloatRange(0, min_open=True), metavar="S", help="Seconds a run may take.")
@click.option("--trace", type=click.Choice(["auto", "ops", "steps"]), default="auto", show_default=True,
              help="auto: operators first, only steps when a run is long; steps: only them. The first step that differs"
              " is then run by operator.")  # fmt: skip
@click.option("--vary-env", multiple=True, metavar="NAME=A,B[,C]", help="Vary an environment variable of your own.")
@click.option(
    "--interrupt", metavar='"NAME=VALUE ... [ARGS]"', help="Variables and arguments that make the program stop early."
)
@click.option("--resume", metavar='"NAME=VALUE ... [ARGS]"',
              help="Variables and arguments of the resumed run, compared with an uninterrupted one.")  # fmt: skip
@click.option("--kill", metavar="STEP[:SIGNAL]", help="For --vary resume: end the run at this step, by TERM or KILL.")
@click.option("--ignore", multiple=True, metavar="KIND[:FILE[:LINE]]",
              help="Do not count findings of this kind; keep searching for others.")  # fmt: skip
@click.option("--fix", type=click.Choice(["off", "on"]), default="off", show_default=True,
              help="on: name every hazard, and say what samerun run fixes on its own.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0, LARGEST_SEED), metavar="N",
              help="With --fix on: seed of what the program does not seed itself. Default: 0.")  # fmt: skip
@click.option("--double", is_flag=True,
              help="One run, in which every operator is executed twice (--repeat N: N times).")  # fmt: skip
@click.option("--neutral", metavar="NAME,...", help="Switches that should change nothing: same, rounding or wrong?"
              ' With --against: "NAME=VALUE ... [ARGS]", one side of your own.')  # fmt: skip
@click.option("--against", metavar='"NAME=VALUE ... [ARGS]"', help="The other side.")
@click.option("--neutral-env", multiple=True, metavar="NAME=A,B[,C]",
              help="An environment variable of your own that should change nothing.")  # fmt: skip
@click.option("--eager", is_flag=True, help="With torch.compile off, to see the operators inside compiled regions.")
@click.option("--on", metavar="ENGINE", help="Make the runs on other machines, which see the same files: a command that"
              " runs another one there (srun, ssh), or ray://HOST:PORT.")  # fmt: skip
@click.option("--at-once", default=1, show_default=True, type=click.IntRange(1, 1000), metavar="N",
              help="With --on: up to N runs at the same time, if the program reads no file it writes.")  # fmt: skip
@click.option("--save", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Keep the traces and outputs of every run.")  # fmt: skip
@click.option("--json", "json_to", metavar="FILE", help="Write the report as JSON; - for standard output.")
@click.option("--html", "html_to", metavar="FILE", help="Write the report as one HTML file.")
@click.option("--sarif", "sarif_to", metavar="FILE", help="Write the findings as SARIF, for annotations of a change.")
@click.option("--patch", "patch_to", metavar="FILE", help="Write the fixes as a patch for git apply or patch -p1.")
@click.option("--apply", is_flag=True, help="Make the changes of confirmed causes in the program's files.")
@click.option("--quiet", is_flag=True, help="No progress, no human-readable report.")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Run a program again under controlled changes: same, or the first operation that differs, and why.

    The program runs a few times in fresh processes, with its environment varied; its code is not changed.
    Its output goes to files, its standard input is empty. Exit code 0: same. 1: different. 2: trouble (bad
    input, the program failed).

    \b
    Examples:
      samerun check train.py
      samerun check --max-steps 50 train.py --epochs 3
      samerun check --vary rerun,hash_seed --json report.json train.py
      samerun check -m package.train --config small.yaml
      samerun check --vary none --interrupt "STOP=3 CKPT={folder}/a" --resume "RESUME={folder}/a" train.py
      samerun check -- torchrun --nproc-per-node 2 train.py
      samerun check --vary resume train.py
      samerun check --fix on train.py        every hazard, and what samerun run fixes on its own
      samerun check --eager train.py         inside compiled regions, and whether it is compilation that differs
      samerun check --patch fix.patch train.py
      samerun check --ignore time:train.py:12 --ignore thread-race train.py
      samerun check --double --max-steps 20 train.py
      samerun check --neutral compile,recompute,attention train.py
      samerun check --neutral "--batch 64" --against "--batch 16 --accumulate 4" train.py
      samerun check --neutral-env ATTENTION=math,flash train.py
      samerun check --on "srun --gres gpu:1" --at-once 4 --repeat 8 train.py

    \b
    Variations: rerun;
      environment: hash_seed, listing_order, memory, clock, locale, timezone, address_layout,
                   allocator, environment_noise, working_directory, home, umask
      shape:       threads, workers, batch_split, process_start, world_size, resume
      machine:     cpu_capability;
      batch: every row in other batches (only by name)

    \b
    Switches of --neutral: compile, recompute, attention, optimizer-implementation, memory-format,
      inference-mode, autocast, precision, world-size, python=PATH, all
    """
    raise_interrupt_on_term_or_hup()
    try:
        if options["double"]:
            _raise_if_options_conflict(ctx, options, "--double", "it is one run, with nothing varied")
        if any(options[name] for name in NEUTRAL_OPTIONS):
            _raise_if_options_conflict(ctx, options, "--neutral", "it compares two sides of a switch, nothing else")
        code = run_check_and_report(ctx.meta[FORM], ctx.meta[WORDS], **options)
    except SamerunError as error:
        _print_error_write_json_and_exit(error, options.get("json_to"), ctx.meta[WORDS])
    sys.exit(code)


def run_check_and_report(
    form: TargetForm,
    words: list[str],
    *,
    json_to: str | None,
    html_to: str | None,
    sarif_to: str | None,
    patch_to: str | None,
    apply: bool,
    quiet: bool,
    save: Path | None,
    **options: Any,
) -> int:
    """Run the check and write its reports; returns the exit code."""
    from samerun.check.search.findings import parse_ignore_rule
    from samerun.check.search.search import Search
    from samerun.commands.lint import add_lint_hints_if_uncertain
    from samerun.report.progress import RunProgress

    outputs = {"--json": json_to, "--html": html_to, "--sarif": sarif_to, "--patch": patch_to}
    for option, path in outputs.items():
        require_output_safe_to_replace(option, path)
    if not quiet and find_unloadable_libraries():
        echo_escaped(f"samerun: {MISSING_IN_ONE_LINE}", err=True)
    begin = time.time()
    ignored = [parse_ignore_rule(text) for text in options["ignore"]]
    if options["seed"] is not None and options["fix"] == "off":
        raise SamerunError(
            f"--seed {options['seed']}: a seed is only given with --fix on; the program is checked as it is.",
            hint="Add --fix on, or leave --seed out.",
        )
    switches = _parse_neutral_options(options)
    target = resolve_target(form, words)
    plan, variations, environment = _build_plan_and_variations(target, options)
    asked = _parse_interruption_options(options) if any(v.name == "resume" for v in variations) else ()
    with ExitStack() as stack:
        folder = _open_trace_folder_and_guard(save, stack)
        progress = stack.enter_context(RunProgress(quiet))
        runner = stack.enter_context(closing(_make_runner(folder, progress, options)))
        search = Search(
            runner, plan, variations, environment, options["repeat"], saved=save is not None,
            interruptions=asked,
        )  # fmt: skip
        report = _search_in_the_mode_asked_for(search, switches, ignored, options)
        progress.clear()
        report = add_lint_hints_if_uncertain(report, words)
        if not quiet and "-" not in (json_to, patch_to, sarif_to):
            from samerun.report.terminal import ReportConsole, show_check_report

            show_check_report(report, ReportConsole())
        _write_report_files(report, outputs)
        if patch_to is not None or apply:
            from samerun.check.search.report_records import write_patch_or_apply_confirmed_fixes

            for line in write_patch_or_apply_confirmed_fixes(report, patch_to, apply, begin):
                if not quiet:
                    echo_escaped(f"samerun: {line}", err=True)
    return report.exit_code


def _make_runner(folder: Path, progress: RunProgress, options: dict[str, Any]) -> Runner:
    """What makes the runs: here, or where --on says. Raises SamerunError for options that do not go together."""
    from samerun.check.execution.runner import Runner

    limit, at_once = options["time_limit"], options["at_once"]
    if options["on"] is None:
        if at_once != 1:
            raise SamerunError(
                f"--at-once {at_once}: on one machine, runs at the same time would share its ports, cores and memory.",
                hint='Name other machines: --on "srun --gres gpu:1", or --on ray://HOST:PORT.',
            )
        return Runner(folder, limit, progress)
    from samerun.check.execution.engines import parse_engine
    from samerun.check.execution.remote_runner import RemoteRunner

    return RemoteRunner(folder, limit, progress, parse_engine(options["on"]), at_once)


def _search_in_the_mode_asked_for(
    search: Search, switches: list[NeutralSwitch], ignored: list[IgnoreRule], options: dict[str, Any]
) -> CheckReport:
    """--neutral, --double, --eager, or the usual search for all findings."""
    from samerun.check.search import modes
    from samerun.check.search.findings import search_past_ignored_findings_and_report

    if switches:
        from samerun.check.neutral.neutral import check_neutrality

        return check_neutrality(search, switches)
    if options["double"]:
        if options["eager"]:
            search.plan = modes.with_compilation_disabled(search.plan)
        return modes.check_by_repeating_every_operator(search, options["repeat"], ignored)
    held = _make_samerun_run_plan(search.plan, options["seed"] or 0) if options["fix"] == "on" else None
    if options["eager"]:
        if held is not None:
            held = replace(held, plan=modes.with_compilation_disabled(held.plan))
        return modes.check_eager_and_compiled(
            search,
            lambda s: search_past_ignored_findings_and_report(s, ignored, held),
            lambda s: search_past_ignored_findings_and_report(s, ignored, None),
        )
    return modes.add_eager_hint_if_in_compiled_region(search_past_ignored_findings_and_report(search, ignored, held))


def _write_report_files(report: CheckReport, path_by_option: dict[str, str | None]) -> None:
    """The JSON, HTML and SARIF that were asked for."""
    if (path := path_by_option["--json"]) is not None:
        from samerun.report.output import check_report_to_json

        write_to_file_or_stdout("--json", path, check_report_to_json(report, __version__))
    if (path := path_by_option["--html"]) is not None:
        from samerun.base.machine import collect_machine_facts
        from samerun.report.html import check_report_to_html

        write_to_file_or_stdout("--html", path, check_report_to_html(report, __version__, collect_machine_facts()))
    if (path := path_by_option["--sarif"]) is not None:
        from samerun.report.sarif import check_report_to_sarif

        write_to_file_or_stdout("--sarif", path, check_report_to_sarif(report, __version__))


def _build_plan_and_variations(
    target: Target, options: dict[str, Any]
) -> tuple[RunPlan, tuple[Variation, ...], tuple[Variation, ...]]:
    """The plan, the variations to try, and all variations of the environment."""
    from samerun.check.plan import RunPlan
    from samerun.check.variations.environment import parse_vary_env_option
    from samerun.check.variations.table import VARIATIONS, parse_vary_option
    from samerun.record.config import WatchConfig

    watch = WatchConfig(
        folder="", depth=options["trace"], max_steps=options["max_steps"], user_folder=target.user_folder
    )
    if options["double"]:
        from samerun.check.search.modes import make_double_execution_variation

        return RunPlan(target.command, target.shown, watch), (make_double_execution_variation(options["repeat"]),), ()
    variations = (
        *parse_vary_option(options["vary"]),
        *(v for text in options["vary_env"] for v in parse_vary_env_option(text)),
    )
    if any(options[name] is not None for name in ("interrupt", "resume", "kill")):
        variations = tuple(dict.fromkeys((*variations, *parse_vary_option("resume"))))
    environment = tuple(v for v in VARIATIONS if v.group == "environment")
    return RunPlan(target.command, target.shown, watch), variations, environment


def _make_samerun_run_plan(plan: RunPlan, seed: int) -> SamerunRunPlan:
    from samerun.check.search.findings import SamerunRunPlan
    from samerun.control.startup.deterministic_start import make_deterministic_run_variables

    return SamerunRunPlan(replace(plan, held=make_deterministic_run_variables(seed)), seed)


NEUTRAL_OPTIONS = ("neutral", "against", "neutral_env")
VARYING_OPTIONS = {
    "vary": "--vary", "vary_env": "--vary-env", "interrupt": "--interrupt", "resume": "--resume", "kill": "--kill",
    "fix": "--fix",
}  # fmt: skip


def _raise_if_options_conflict(ctx: click.Context, options: dict[str, Any], mode: str, why: str) -> None:
    """Raises SamerunError for options that cannot go with --double or --neutral."""
    named = dict(VARYING_OPTIONS)
    if mode == "--neutral":
        named |= {"double": "--double", "eager": "--eager", "ignore": "--ignore", "repeat": "--repeat",
                  "patch_to": "--patch", "apply": "--apply", "trace": "--trace"}  # fmt: skip
    given = [word for name, word in named.items()
             if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE]  # fmt: skip
    if given:
        raise SamerunError(
            f"{' and '.join(given)} cannot go with {mode}: {why}.",
            hint=f"Check twice: once with {mode}, once with the rest.",
        )
    if options["trace"] == "steps":
        raise SamerunError("--trace steps cannot go with --double, which looks at operators.", hint="Leave it out.")


def _parse_neutral_options(options: dict[str, Any]) -> list[NeutralSwitch]:
    """The switches that the options name; none if they name none. Raises SamerunError for what cannot be read."""
    from samerun.check.plan import parse_environment_and_arguments
    from samerun.check.variations import neutral_switches

    found = [s for text in options["neutral_env"] for s in neutral_switches.parse_neutral_env_option(text)]
    first, second = options["neutral"], options["against"]
    if second is not None:
        if first is None:
            raise SamerunError(
                "--against is given, and --neutral is not.",
                hint='Name both sides: --neutral "ARGS A" --against "ARGS B"; "" is the program as it is.',
            )
        sides = (
            parse_environment_and_arguments("--neutral", first),
            parse_environment_and_arguments("--against", second),
        )
        if sides[0] == sides[1]:
            raise SamerunError("--neutral and --against name the same settings.", hint="Name two sides that differ.")
        return [*found, neutral_switches.make_own_switch(*sides)]
    return [*found, *(neutral_switches.parse_neutral_option(first) if first is not None else ())]


def _parse_interruption_options(options: dict[str, Any]) -> tuple[Interruption, ...]:
    from samerun.check.execution.interruption import parse_interruptions

    return parse_interruptions(options["interrupt"], options["resume"], options["kill"])


def _open_trace_folder_and_guard(save: Path | None, stack: ExitStack) -> Path:
    """The folder for the traces of all runs: temporary, or the one of --save, which must be empty."""
    if save is None:
        return stack.enter_context(guarded_work_folder())
    try:
        save.mkdir(parents=True, exist_ok=True)
        if any(save.iterdir()):
            raise SamerunError(f"--save {save}: the folder is not empty.", hint="Name a new one, or empty it.")
    except OSError as error:
        raise SamerunError(f"--save {save}: {error.strerror}.", hint="Name a folder that can be written.") from error
    folder = save.resolve()
    stack.enter_context(kill_marked_processes_on_death(folder))
    return folder


def _print_error_write_json_and_exit(error: SamerunError, json_to: str | None, words: list[str]) -> NoReturn:
    from samerun.base.records import TROUBLE, CheckReport
    from samerun.check.execution.runner import RunFailed
    from samerun.report.output import check_report_to_json

    if isinstance(error, RunFailed) and error.stderr_tail:
        echo_escaped(f"--- the program's standard error ({error.run.name}) ---\n{error.stderr_tail}\n---", err=True)
    echo_escaped(f"samerun: {error}", err=True)
    if json_to is not None:
        report = CheckReport(TROUBLE, tuple(words), notes=(str(error),))
        try:
            write_to_file_or_stdout("--json", json_to, check_report_to_json(report, __version__))
        except SamerunError:
            pass
    sys.exit(2)
