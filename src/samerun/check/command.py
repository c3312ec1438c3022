"""`samerun check`."""

from __future__ import annotations

import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

import click

from samerun import __version__
from samerun.base.errors import SamerunError
from samerun.check.target import resolve, split


class CheckCommand(click.Command):
    """Takes its options before the program; everything behind the program's name is the program's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        takes_value = {
            name for p in self.get_params(ctx) if isinstance(p, click.Option) and not p.is_flag for name in p.opts
        }
        own, form, words = split(args, takes_value)
        ctx.meta["samerun.form"], ctx.meta["samerun.words"] = form, words
        return super().parse_args(ctx, own)


@click.command(
    "check",
    cls=CheckCommand,
    options_metavar="[OPTIONS] SCRIPT [ARGS...]",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--vary", default="rerun,environment", show_default=True, metavar="LIST",
              help="Names of variations or groups; all; none.")  # fmt: skip
@click.option("--repeat", default=2, show_default=True, type=click.IntRange(2, 1000), metavar="N",
              help="How often the unvaried program runs. More finds differences that are rare.")  # fmt: skip
@click.option("--max-steps", type=click.IntRange(1), metavar="N", help="End each run after N optimizer steps.")
@click.option("--time-limit", type=click.FloatRange(0, min_open=True), metavar="S", help="Seconds a run may take.")
@click.option("--trace", type=click.Choice(["auto", "ops", "steps"]), default="auto", show_default=True,
              help="auto: operators first, only steps when a run is long, then the first differing step.")  # fmt: skip
@click.option("--vary-env", multiple=True, metavar="NAME=A,B[,C]", help="Vary an environment variable of your own.")
@click.option("--interrupt", metavar="SETTINGS", help="NAME=VALUE ... [ARGS] for a run that stops early.")
@click.option("--resume", metavar="SETTINGS", help="NAME=VALUE ... [ARGS] for the run that takes it up again.")
@click.option("--kill", metavar="STEP[:SIGNAL]", help="End the interrupted run at a step, by TERM or KILL (default).")
@click.option("--save", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Keep the traces and outputs of every run.")  # fmt: skip
@click.option("--json", "json_to", metavar="FILE", help="Write the report as JSON; - for standard output.")
@click.option("--quiet", is_flag=True, help="No progress, no report for people.")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Run a program again under controlled changes: same, or the first operation that differs, and why.

    The program is run a few times in fresh processes, unchanged. Its output goes to files, its standard
    input is empty. Exit code 0: same. 1: different. 2: trouble (bad input, the program failed).

    \b
    Examples:
      samerun check train.py
      samerun check --max-steps 50 train.py --epochs 3
      samerun check --vary rerun,hash_seed --json report.json train.py
      samerun check -m package.train --config small.yaml
      samerun check -- torchrun --nproc-per-node 2 train.py
      samerun check --vary resume train.py
      samerun check --vary none --interrupt "STOP_AT=3 CKPT={folder}/c" --resume "RESUME={folder}/c" train.py

    Variations: rerun, hash_seed, listing_order, memory, clock, locale, timezone (the group
    "environment" is all but rerun), threads, resume.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = check(ctx.meta["samerun.form"], ctx.meta["samerun.words"], **options)
    except SamerunError as error:
        _trouble(error, options.get("json_to"), ctx.meta["samerun.words"])
    sys.exit(code)


def check(form: str, words: list[str], *, json_to: str | None, quiet: bool, save: Path | None, **options: Any) -> int:
    """Do it; returns the exit code."""
    from samerun.check.runner import Runner
    from samerun.check.search import Search
    from samerun.report.json import to_json
    from samerun.report.progress import Progress

    if json_to not in (None, "-"):
        _check_writable(Path(json_to))
    target = resolve(form, words)
    plan, variations, environment = _plan(target, options)
    asked = _interruptions(options) if any(v.name == "resume" for v in variations) else ()
    with ExitStack() as stack:
        folder = _folder(save, stack)
        runner = Runner(folder, options["time_limit"], Progress(quiet))
        search = Search(runner, plan, variations, environment, options["repeat"], save is not None, asked)
        report = search.check()
        if not quiet and json_to != "-":
            from rich.console import Console

            from samerun.report.terminal import show

            show(report, Console(highlight=False, soft_wrap=False))
        if json_to is not None:
            _write(json_to, to_json(report, __version__))
    return report.exit_code


def _plan(target: Any, options: dict[str, Any]) -> tuple[Any, Any, Any]:
    from samerun.check.plan import Plan
    from samerun.check.variations.environment_variable import parse
    from samerun.check.variations.table import VARIATIONS, choose
    from samerun.record.config import WatchConfig

    watch = WatchConfig(
        folder="", depth=options["trace"], max_steps=options["max_steps"], user_folder=target.user_folder
    )
    variations = (*choose(options["vary"]), *(v for text in options["vary_env"] for v in parse(text)))
    if any(options[name] is not None for name in ("interrupt", "resume", "kill")):
        variations = tuple(dict.fromkeys((*variations, *choose("resume"))))
    environment = tuple(v for v in VARIATIONS if v.group == "environment")
    return Plan(target.command, target.shown, watch), variations, environment


def _interruptions(options: dict[str, Any]) -> Any:
    from samerun.check.interruption import interruptions

    return interruptions(options["interrupt"], options["resume"], options["kill"])


def _folder(save: Path | None, stack: ExitStack) -> Path:
    """Where the runs' folders go. A folder that holds something already is never written into."""
    if save is None:
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="samerun-", ignore_cleanup_errors=True)))
    try:
        save.mkdir(parents=True, exist_ok=True)
        if any(save.iterdir()):
            raise SamerunError(f"--save {save}: the folder is not empty.", hint="Name a new one, or empty it.")
    except OSError as error:
        raise SamerunError(f"--save {save}: {error.strerror}.", hint="Name a folder that can be written.") from error
    return save.resolve()


def _check_writable(path: Path) -> None:
    """Before anything runs: a report that cannot be written in the end would be a waste."""
    try:
        existed = path.exists()
        with open(path, "a", encoding="utf-8"):
            pass
        if not existed:
            path.unlink()
    except OSError as error:
        raise SamerunError(f"--json {path}: {error.strerror}.", hint="Name a file that can be written.") from error


def _write(json_to: str, text: str) -> None:
    if json_to == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        Path(json_to).write_text(text, encoding="utf-8")
    except OSError as error:
        raise SamerunError(f"--json {json_to}: {error.strerror}.", hint="Name a file that can be written.") from error


def _trouble(error: SamerunError, json_to: str | None, words: list[str]) -> NoReturn:
    from samerun.base.records import TROUBLE, CheckReport
    from samerun.check.runner import RunFailed
    from samerun.report.json import to_json

    if isinstance(error, RunFailed) and error.said:
        click.echo(f"--- the program's standard error ({error.run.name}) ---\n{error.said}\n---", err=True)
    click.echo(f"samerun: {error}", err=True)
    if json_to is not None:
        try:
            _write(json_to, to_json(CheckReport(TROUBLE, tuple(words), notes=(str(error),)), __version__))
        except SamerunError:
            pass
    sys.exit(2)


def _interrupt(number: int, frame: Any) -> NoReturn:
    raise KeyboardInterrupt
