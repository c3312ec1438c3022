"""`samerun bisect`: which commit, setting or package moved the results?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from samerun import __version__
from samerun.base.errors import SamerunError
from samerun.base.files import require_output_safe_to_replace
from samerun.base.program_command import raise_interrupt_on_term_or_hup
from samerun.base.target import TargetForm, resolve_target
from samerun.base.text import echo_escaped
from samerun.base.user_code import format_source_location
from samerun.base.work_folder import temporary_work_folder

if TYPE_CHECKING:
    from samerun.record.receipt.bisection import BisectionResult, RecordedChange, RunState
    from samerun.record.receipt.diff import ComparedRun
    from samerun.record.trace.run import Event

INTERRUPTING = (signal.SIGINT, signal.SIGTERM)
HINT = "Try: samerun bisect v1.0 HEAD -- train.py, or samerun bisect --over settings a.json b.json -- train.py"


@click.command(
    "bisect",
    options_metavar="[OPTIONS]",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("good")
@click.argument("bad")
@click.argument("program_words", nargs=-1, metavar="-- SCRIPT [ARGS...]", type=click.UNPROCESSED)
@click.option("--over", type=click.Choice(["commits", "settings", "packages", "data"]), default="commits",
              show_default=True,
              help="GOOD and BAD are two commits; or two receipts, of which settings or packages differ; or two "
                   "folders of data.")  # fmt: skip
@click.option("--with", "linked", multiple=True, metavar="PATH",
              help="A file or folder in no commit that the program reads: linked into each checkout.")  # fmt: skip
@click.option("--ignore-output", multiple=True, metavar="GLOB", help="Output files that do not count: logs with times.")
@click.option("--save", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Keep the receipts.")
@click.option("--json", "json_to", metavar="FILE", help="Write the answer as JSON; - for standard output.")
@click.option("--quiet", is_flag=True, help="No progress, no human-readable report.")
def command(
    good: str, bad: str, program_words: tuple[str, ...], json_to: str | None, quiet: bool, **options: Any
) -> None:
    """Find the change that moved the results of a program, by running it: halving, with receipts as proof.

    GOOD and BAD are two commits of the repository in which you are, the good one first. Each that is tried is checked
    out into a temporary folder; the working tree and what is not committed stay as they are. With --over settings or
    packages they are two receipts: arguments and variables of the one are changed into those of the other, or versions
    of packages, which pip installs into a folder that is kept for the next time. With --over data they are two folders:
    {} among the program's arguments stands for a folder with files of both. The program's output goes to standard
    error. Exit code 1: the change was found. 2: trouble; also where both ends give the same.

    \b
    Examples:
      samerun bisect v1.0 HEAD -- train.py --epochs 1
      samerun bisect 3f2a9c1 main --with data -- train.py
      samerun bisect --over settings monday.json friday.json -- train.py
      samerun bisect --over packages old.json new.json -- train.py
      samerun bisect --over data monday friday -- train.py --data {}
    """
    from samerun.report.output import write_json_and_show_unless_to_stdout

    raise_interrupt_on_term_or_hup()
    try:
        require_output_safe_to_replace("--json", json_to)
        form, words = _detect_target_form_and_drop_module_flag(program_words)
        bisect = {"commits": bisect_commits, "settings": bisect_arguments_and_variables, "packages": bisect_packages,
                  "data": bisect_data}[options["over"]]  # fmt: skip
        with _open_empty_receipt_folder(options["save"]) as folder:
            program = ProgramRuns(folder, form, words, options["linked"], quiet)
            record = bisect(program, good, bad, options["ignore_output"])
        write_json_and_show_unless_to_stdout(
            {"schema": 1, "samerun": __version__, **record}, show_bisection, json_to, quiet
        )
    except SamerunError as error:
        echo_escaped(f"samerun: {error}", err=True)
        sys.exit(2)
    sys.exit(1)


def _detect_target_form_and_drop_module_flag(words: tuple[str, ...]) -> tuple[TargetForm, list[str]]:
    if not words:
        raise SamerunError("No script given.", hint=HINT)
    if words[0] == "-m":
        return "module", list(words[1:])
    return "script" if words[0].endswith(".py") else "command", list(words)


@contextmanager
def _open_empty_receipt_folder(save: Path | None) -> Iterator[Path]:
    if save is None:
        with temporary_work_folder() as folder:
            yield folder
        return
    try:
        save.mkdir(parents=True, exist_ok=True)
        if any(save.iterdir()):
            raise SamerunError(f"--save {save}: the folder is not empty.", hint="Name a new one, or empty it.")
    except OSError as error:
        raise SamerunError(f"--save {save}: {error.strerror}.", hint="Name a folder that can be written.") from error
    yield save.resolve()


class ProgramRuns:
    """Runs the program in one state after the other, each with a receipt and a trace of its operators."""

    def __init__(self, folder: Path, form: TargetForm, words: list[str], linked: Sequence[str], quiet: bool) -> None:
        self.folder, self.form, self.words, self.linked, self.quiet = folder, form, words, linked, quiet
        self.count = 0

    def run(self, state_name: str, words: list[str] | None = None, **environment: str | None) -> ComparedRun | None:
        """None if the program cannot be started here, or fails."""
        from samerun.control.determinism.survey import collect_facts_outside_program
        from samerun.record.receipt.diff import load_run
        from samerun.record.receipt.watched_run import RunRequest, run_and_write_receipt

        self.count += 1
        if not self.quiet:
            echo_escaped(f"samerun: run {self.count}: {state_name}", err=True)
        try:
            target = resolve_target(self.form, self.words if words is None else words)
        except SamerunError as error:
            echo_escaped(f"samerun: {state_name}: {error.message}", err=True)
            return None
        variables = {**os.environ, **{key: value for key, value in environment.items() if value is not None}}
        for key in [key for key, value in environment.items() if value is None]:
            variables.pop(key, None)
        request = RunRequest(target, self.form, __version__, None, variables, collect_facts_outside_program(),
                             depth="ops", stdout=sys.stderr)  # fmt: skip
        path = self.folder / f"{self.count:02d}-{''.join(c if c.isalnum() else '-' for c in state_name)[:40]}.json"
        ended, _ = run_and_write_receipt(request, path)
        if ended.signal in INTERRUPTING:  # Ctrl-C reaches the program, not us
            raise KeyboardInterrupt
        if ended.signal is not None or ended.exit_code:
            return None
        return replace(load_run(path), name=state_name)


def make_bisection_record(
    over: str,
    program: ProgramRuns,
    changes: Sequence[RecordedChange],
    result: BisectionResult,
    moved_operator: Event | None,
) -> dict[str, Any]:
    """The answer as plain values."""
    change = changes[result.change]
    return {
        "over": over,
        "command": program.words,
        "changes": len(changes),
        "runs": program.count,
        "change": {"name": change.name, "detail": change.detail},
        "untested": [{"name": changes[at].name, "detail": changes[at].detail} for at in result.untested],
        "difference": result.difference,
        "operator": moved_operator.name if moved_operator is not None else None,
        "file": format_source_location(moved_operator.file, 0).removesuffix(":0") if moved_operator is not None else "",
        "line": moved_operator.line if moved_operator is not None else 0,
        "good": result.good_run.name,
        "bad": result.bad_run.name,
    }


# --- commits
def bisect_commits(
    program: ProgramRuns, good_commit: str, bad_commit: str, ignored_output_globs: Sequence[str]
) -> dict[str, Any]:
    from samerun.record.receipt.bisection import bisect_changes, find_first_differing_operator_event, open_commit_row

    here = Path.cwd()
    with open_commit_row(good_commit, bad_commit) as row, temporary_work_folder() as scratch:
        checkout = scratch / "checkout"
        inside = checkout / os.path.relpath(os.path.realpath(here), row.repository.top)
        changes = row.changes()

        def run_state(number: int) -> ComparedRun | None:
            row.empty_folder_and_check_out(number, checkout)
            if not inside.is_dir():
                return None
            for path in program.linked:
                link = inside / path
                if not os.path.lexists(link):
                    link.parent.mkdir(parents=True, exist_ok=True)
                    link.symlink_to(here / path)
            os.chdir(inside)
            try:
                return program.run(changes[number - 1].name if number else row.commits[0][:12])
            finally:
                os.chdir(here)

        result = bisect_changes(len(changes), run_state, ignored_output_globs)
        moved = find_first_differing_operator_event(
            result.good_run,
            result.bad_run,
            row.make_line_map_from_previous_commit(result.change + 1, Path(os.path.realpath(checkout))),
        )
        if moved is not None and moved.file.startswith(os.path.realpath(checkout) + os.sep):
            moved = replace(moved, file=os.path.relpath(moved.file, os.path.realpath(checkout)))
        return make_bisection_record("commits", program, changes, result, moved)


def bisect_and_make_record(
    over: str,
    program: ProgramRuns,
    changes: Sequence[RecordedChange],
    run_state: RunState,
    ignored_output_globs: Sequence[str],
) -> dict[str, Any]:
    """The same program in all states: lines need no translation."""
    from samerun.record.receipt.bisection import bisect_changes, find_first_differing_operator_event

    result = bisect_changes(len(changes), run_state, ignored_output_globs)
    moved = find_first_differing_operator_event(result.good_run, result.bad_run, lambda file, line: line)
    return make_bisection_record(over, program, changes, result, moved)


# --- between two receipts
def _load_receipts(good: str, bad: str) -> tuple[dict[str, Any], dict[str, Any]]:
    from samerun.record.receipt.diff import load_run

    receipts = [load_run(Path(name)).receipt for name in (good, bad)]
    for name, receipt in zip((good, bad), receipts, strict=True):
        if receipt is None:
            raise SamerunError(
                f"{name} holds traces and no receipt.", hint="Name two receipts (samerun run --receipt)."
            )
    return receipts[0] or {}, receipts[1] or {}


def bisect_arguments_and_variables(
    program: ProgramRuns, good_receipt: str, bad_receipt: str, ignored_output_globs: Sequence[str]
) -> dict[str, Any]:
    """The program is the one that the user names; of the receipts come only its arguments and harmless variables."""
    from samerun.record.receipt import bisection
    from samerun.record.receipt.recorded_command import select_allowlisted_variables

    states = []
    receipts = _load_receipts(good_receipt, bad_receipt)
    for name, receipt in zip((good_receipt, bad_receipt), receipts, strict=True):
        words = receipt["command"]["words"]
        if words[:1] != program.words[:1]:
            raise SamerunError(
                f"{name} is of {' '.join(words[:1]) or 'no program'}, and the program is {program.words[0]}.",
                hint="Name the program that both receipts are of.",
            )
        states.append(bisection.SettingsState(tuple(words[1:]), select_allowlisted_variables(receipt["variables"])))
    changes = bisection.list_setting_changes(*states)
    if not changes:
        # A variable of the user's own may hold a secret: of its value a receipt keeps a digest, which cannot be set.
        read = [receipt["processes"].get("main", {}).get("environment", {}) for receipt in receipts]
        others = ", ".join(name for name in sorted({*read[0], *read[1]}) if read[0].get(name) != read[1].get(name))
        raise SamerunError(
            "The arguments, and the variables whose values receipts keep, are the same in both.",
            hint=f"The program read other values of {others}: give them as arguments."
            if others
            else "Try --over packages.",
        )

    def run_state(count: int) -> ComparedRun | None:
        state = bisection.apply_setting_changes(states[0], changes[:count])
        names = {*states[0].variables, *states[1].variables}
        environment = {name: state.variables.get(name) for name in names}
        return program.run(f"{count} of {len(changes)} changes", [program.words[0], *state.words], **environment)

    return bisect_and_make_record("settings", program, changes, run_state, ignored_output_globs)


def bisect_packages(
    program: ProgramRuns, good_receipt: str, bad_receipt: str, ignored_output_globs: Sequence[str]
) -> dict[str, Any]:
    """Versions that differ from the present environment are installed by pip, each into a folder that is kept."""
    from importlib.metadata import distributions

    from samerun.record.receipt import bisection

    installed = {bisection.canonicalize_package_name(each.name): each.version for each in distributions()}
    good_versions, bad_versions = (
        {name: version for name, version in receipt["packages"].items() if name != "samerun"}
        for receipt in _load_receipts(good_receipt, bad_receipt)
    )
    changes, kept = bisection.list_package_changes(good_versions, bad_versions, installed)
    if kept and not program.quiet:
        echo_escaped(f"samerun: installed here, so they stay in all runs: {', '.join(kept)}", err=True)
    if not changes:
        what = "Both receipts have the same packages"
        if kept:
            what = f"The packages of the receipts differ only where this environment decides: {', '.join(kept)}"
        raise SamerunError(f"{what}.", hint="Try --over settings, or --over commits.")

    def run_state(count: int) -> ComparedRun | None:
        folders = []
        for at, change in enumerate(changes):
            version = change.bad if at < count else change.good
            if version is not None and installed.get(bisection.canonicalize_package_name(change.name)) != version:
                folders.append(str(pip_install_into_cache_unless_there(change.name, version, program.quiet)))
        path = os.pathsep.join([*folders, *filter(None, [os.environ.get("PYTHONPATH")])])
        return program.run(f"{count} of {len(changes)} changes", PYTHONPATH=path or None)

    return bisect_and_make_record("packages", program, changes, run_state, ignored_output_globs)


def pip_install_into_cache_unless_there(name: str, version: str, quiet: bool) -> Path:
    """The folder with one version of a package, installed by pip unless it is there. Raises SamerunError."""
    if not all(c.isalnum() or c in "._-+!" for c in name + version) or name.startswith("-"):
        raise SamerunError(f"{name} {version} is no package and version.", hint="Is the receipt whole?")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "samerun" / "packages"
    # The name by which code of libraries is told from the user's.
    folder = base / f"{name}-{version}-{sys.implementation.cache_tag}" / "site-packages"
    if (folder / ".whole").is_file():
        return folder
    if not quiet:
        echo_escaped(f"samerun: pip installs {name} {version} into {folder}", err=True)
    command_line = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--upgrade",
        "--target",
        str(folder),
    ]
    done = subprocess.run([*command_line, f"{name}=={version}"], stdout=sys.stderr, check=False)
    if done.returncode:
        raise SamerunError(f"pip could not install {name} {version}.", hint="Is there such a version for this Python?")
    (folder / ".whole").touch()
    return folder


# --- between two folders
def bisect_data(
    program: ProgramRuns, good_folder: str, bad_folder: str, ignored_output_globs: Sequence[str]
) -> dict[str, Any]:
    """The program reads a folder of links, always the same one, to files of the good folder and of the bad one."""
    from samerun.record.receipt import bisection

    if not any("{}" in word for word in program.words):
        raise SamerunError("No argument of the program says where its data are.",
                           hint="Write {} for the folder: -- train.py --data {}")  # fmt: skip
    files = [bisection.map_data_files_by_relative_path(Path(folder)) for folder in (good_folder, bad_folder)]
    changes = bisection.list_file_changes(*files)
    if not changes:
        raise SamerunError(
            f"{good_folder} and {bad_folder} hold the same files.", hint="Try --over commits, or --over packages."
        )
    with temporary_work_folder() as scratch:
        folder = scratch / "data"
        words = [word.replace("{}", str(folder)) for word in program.words]

        def run_state(count: int) -> ComparedRun | None:
            bisection.empty_folder_and_link_changed_data(folder, files[0], changes[:count])
            return program.run(f"{count} of {len(changes)} changes", words)

        return bisect_and_make_record("data", program, changes, run_state, ignored_output_globs)


# --- in words
def show_bisection(record: dict[str, Any], console: Any) -> None:
    """Print the answer."""
    from rich.text import Text

    change = record["change"]
    console.print(Text("FOUND", style="bold red").append(f"  {change['name']}", style="default"))
    console.print(Text(f"      {change['detail']}", style="dim"))
    console.print(f"      {record['runs']} runs for {record['changes']} {record['over']}")
    if record["difference"]:
        console.print(record["difference"])
    if record["operator"]:
        where = f" at {format_source_location(record['file'], record['line'])}" if record["line"] else ""
        console.print(f"First operator: {record['operator']}{where}")
    for each in record["untested"]:
        console.print(Text(f"It may also be {each['name']} ({each['detail']}), which does not run.", style="yellow"))
