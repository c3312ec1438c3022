"""`samerun lint`. A face: brings the rules, the report in four formats, and the experiments of `check` together."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from samerun import __version__
from samerun.base.errors import SamerunError
from samerun.base.files import require_output_safe_to_replace, write_to_file_or_stdout
from samerun.base.program_command import raise_interrupt_on_term_or_hup
from samerun.base.records import CheckReport, FoundCause, Hazard, LintFinding, LintProblem, LintReport
from samerun.base.text import echo_escaped, escape_as_one_line

if TYPE_CHECKING:
    from samerun.lint.file_linting import LintedFile
    from samerun.lint.rule import Rule

MAX_STDIN_BYTES = 4 << 20


@click.command("lint", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("paths", nargs=-1, metavar="PATH...")
@click.option("--select", multiple=True, metavar="CODES",
              help="Rules by the beginning of their codes, by comma; default; all. [default: default]")  # fmt: skip
@click.option("--ignore", multiple=True, metavar="CODES", help="Rules to leave out.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Paths that are not looked at.")
@click.option("--fix", is_flag=True, help="Make the changes that can be made mechanically, in the files.")
@click.option("--format", "form", type=click.Choice(["text", "json", "sarif", "github"]), default="text",
              show_default=True, help="Format of what goes to standard output.")  # fmt: skip
@click.option("--confirm", metavar='"SCRIPT [ARGS]"',
              help="Run the program with samerun check, which proves or drops each finding.")  # fmt: skip
@click.option("--stdin-filename", metavar="FILE", help="Name of the text that comes from standard input.")
@click.option("--json", "json_to", metavar="FILE", help="Write the findings as JSON too; - for standard output.")
@click.option("--quiet", is_flag=True, help="No human-readable output.")
def command(
    paths: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    exclude: tuple[str, ...],
    fix: bool,
    form: str,
    confirm: str | None,
    stdin_filename: str | None,
    json_to: str | None,
    quiet: bool,
) -> None:
    """Find hazards in source without running it: many of the causes that check finds by running.

    PATH is a file, a folder, or - for a program on standard input. Notebooks are looked at too. Nothing is imported or
    executed, except with --confirm. Settings: [tool.samerun.lint] in pyproject.toml, with select, ignore, exclude.
    A comment `# noqa: SR121` on its line leaves a finding out. Exit code 0: clean. 1: findings. 2: trouble.

    \b
    Examples:
      samerun lint .
      samerun lint --select all --ignore SR144 train.py
      samerun lint --fix src/
      samerun lint --format sarif . > lint.sarif
      samerun lint --stdin-filename train.py - < train.py
      samerun lint --confirm "train.py --epochs 1"
    """
    from samerun.lint.file_linting import read_lint_settings, select_rules

    raise_interrupt_on_term_or_hup()
    try:
        require_output_safe_to_replace("--json", json_to)
        settings = read_lint_settings(Path.cwd())
        rules = select_rules(_split_at_commas(select) or settings.select, [*settings.ignore, *_split_at_commas(ignore)])
        words = _split_script(confirm)
        report = _lint_paths(paths or tuple(words[:1]), [*settings.exclude, *exclude], rules, fix, stdin_filename)
        if words:
            report = judge_findings_by_varied_runs(report, words, quiet)
        if not quiet and json_to != "-":
            _print(format_report(report, form, rules), plain=form in ("json", "sarif"))
        for problem in report.problems:
            echo_escaped(f"samerun: {escape_as_one_line(problem.file)}: {problem.message}.", err=True)
        if json_to is not None:
            write_to_file_or_stdout("--json", json_to, format_report(report, "json", rules))
    except SamerunError as error:
        echo_escaped(f"samerun: {error}", err=True)
        sys.exit(2)
    sys.exit(report.exit_code)


def _split_at_commas(options: Sequence[str]) -> tuple[str, ...]:
    return tuple(word.strip() for option in options for word in option.split(",") if word.strip())


def _split_script(confirm: str | None) -> list[str]:
    if confirm is None:
        return []
    try:
        words = shlex.split(confirm)
    except ValueError as error:
        raise SamerunError(f"--confirm {confirm}: {error}.", hint="Close the quotation.") from error
    if not words:
        raise SamerunError("--confirm: no script given.", hint='samerun lint --confirm "train.py --epochs 1"')
    return words


def _print(text: str, *, plain: bool) -> None:
    """Text for people is escaped line by line; JSON escapes by itself."""
    if plain:
        click.echo(text, nl=False)
    else:
        for line in text.splitlines():
            echo_escaped(line)


def _lint_paths(
    paths: Sequence[str], exclude: Sequence[str], rules: Sequence[Rule], fix: bool, stdin_filename: str | None
) -> LintReport:
    """Look at everything that is named, and with --fix mend it. Raises SamerunError for paths that do not fit."""
    from samerun.lint.file_linting import lint_files
    from samerun.lint.project_seeding import find_facts_of_files_below_folders
    from samerun.lint.source_files import find_source_files

    if not paths:
        raise SamerunError("No file or folder given.", hint="samerun lint .")
    if "-" in paths:
        if len(paths) > 1 or fix:
            raise SamerunError("- cannot go with other paths or with --fix.", hint="Give it alone.")
        return _lint_stdin(rules, stdin_filename or "<stdin>")
    files, configurations, problems = find_source_files(paths, exclude)
    results = lint_files(files, rules, find_facts_of_files_below_folders(paths, files, configurations))
    mended, unwritable = 0, dict[str, LintProblem]()
    while fix and (count := _fix_all_and_note_unwritable(results, rules, unwritable)):
        mended += count  # a seed that was put in can make more findings count
        results = lint_files(files, rules, find_facts_of_files_below_folders(paths, files, configurations))
    problems += [*unwritable.values(), *(one.problem for one in results if one.problem is not None)]
    return LintReport(len(files), tuple(f for one in results for f in one.findings), tuple(problems), mended)


def _fix_all_and_note_unwritable(
    results: Sequence[LintedFile], rules: Sequence[Rule], unwritable: dict[str, LintProblem]
) -> int:
    """Mend the files; returns how many findings were mended, and notes the files that cannot be written."""
    from samerun.lint.file_linting import fix_file

    mended = 0
    for one in results:
        try:
            mended += fix_file(one, rules)
        except OSError as error:
            unwritable[one.file] = LintProblem(one.file, f"it cannot be written ({error.strerror or error})")
    return mended


def _lint_stdin(rules: Sequence[Rule], shown_file_name: str) -> LintReport:
    from samerun.base.source_edits import decode_python_source
    from samerun.lint.file_linting import lint_notebook, lint_text

    raw = sys.stdin.buffer.read(MAX_STDIN_BYTES + 1)
    if len(raw) > MAX_STDIN_BYTES:
        raise SamerunError(f"Standard input has more than {MAX_STDIN_BYTES} bytes.", hint="Give one source file.")
    try:
        if shown_file_name.endswith(".ipynb"):
            result = lint_notebook(raw, shown_file_name, rules)
        else:
            result = lint_text(decode_python_source(raw).text, shown_file_name, rules)
    except (SyntaxError, ValueError) as error:
        return LintReport(1, (), (LintProblem(shown_file_name, str(error)),))
    return LintReport(1, result.findings, (result.problem,) if result.problem is not None else ())


# --- formats
def format_report(report: LintReport, form: str, rules: Sequence[Rule]) -> str:
    """The report in one of the four formats."""
    if form == "json":
        return json.dumps(report.to_dict(__version__), indent=2) + "\n"
    if form == "sarif":
        return format_sarif(report, rules)
    return format_github(report) if form == "github" else format_text(report)


def format_text(report: LintReport) -> str:
    """`file:line:column: code message`, with what to do; then how many there are."""
    lines = []
    for one in report.findings:
        cell = f"cell {one.cell}:" if one.cell is not None else ""
        where = f"{escape_as_one_line(one.file)}:{cell}{one.line}:{one.column}"
        state = f" [{one.confirmed}]" if one.confirmed else " [--fix]" if one.fixable else ""
        lines += [f"{where}: {one.code} {one.message}{state}", f"    {one.fix} ({one.cause})"]
    count = len(report.findings)
    mended = f"{report.fixed} fixed, " if report.fixed else ""
    lines.append(
        f"{mended}{count} finding{'' if count == 1 else 's'} in {report.files} file{'' if report.files == 1 else 's'}"
    )
    return "\n".join(lines)


def format_github(report: LintReport) -> str:
    """Workflow commands, which GitHub shows beside the lines."""
    lines = []
    for one in report.findings:
        place = {
            "file": one.file,
            "line": one.line,
            "endLine": one.end_line,
            "col": one.column,
            "title": f"{one.code} {one.name}",
        }
        fields = ",".join(f"{key}={_escape_for_github(str(value), ',:')}" for key, value in place.items())
        lines.append(f"::warning {fields}::{_escape_for_github(f'{one.message}; {one.fix}')}")
    return "\n".join(lines)


def _escape_for_github(text: str, more_characters: str = "") -> str:
    return "".join(f"%{ord(c):02X}" if c in "%\r\n" + more_characters else c for c in text)


def format_sarif(report: LintReport, rules: Sequence[Rule]) -> str:
    """SARIF 2.1.0."""
    from urllib.parse import quote

    results = [
        {
            "ruleId": one.code, "level": "warning", "message": {"text": f"{one.message}; {one.fix}"},
            "locations": [{"physicalLocation": {
                "artifactLocation": {"uri": quote(one.file.replace(os.sep, "/"))},
                "region": {"startLine": one.line, "startColumn": one.column, "endLine": one.end_line,
                           "endColumn": max(one.end_column, one.column + 1 if one.end_line == one.line else 1)},
            }}],
        }
        for one in report.findings
    ]  # fmt: skip
    described = [
        {"id": rule.code, "name": rule.name, "shortDescription": {"text": rule.what},
         "fullDescription": {"text": rule.why}, "help": {"text": rule.fix}}
        for rule in rules
    ]  # fmt: skip
    problems = [{"level": "error", "message": {"text": f"{one.file}: {one.message}"}} for one in report.problems]
    run = {
        "tool": {"driver": {"name": "samerun", "version": __version__, "rules": described}},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": not problems, "toolExecutionNotifications": problems}],
        "results": results,
    }
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return json.dumps({"$schema": schema, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


# --- experiments
SHOWN_BY: dict[str, tuple[str, ...]] = {
    "worker-seed": ("workers", "process_start"), "resume-rng": ("resume",), "resume-position": ("resume",),
    "worker-count": ("workers",), "time": ("rerun", "clock"), "object-id": ("rerun", "address_layout"),
    "uninitialised-memory": ("rerun", "memory"), "hash-order": ("hash_seed",), "listing-order": ("listing_order",),
}  # fmt: skip
"""The variations under which a cause of a kind shows; others show on a rerun."""


RESUME_HINT = "To be interrupted, the program must keep its checkpoints in the folder in SAMERUN_CHECKPOINTS."


def judge_findings_by_varied_runs(report: LintReport, words: list[str], quiet: bool) -> LintReport:
    """Run the script under the variations that would show the findings, and say of each what came of it.

    Proven: `check` is certain of a cause of this kind at this place. Dropped: none of the variations that would show it
    changed the result. Otherwise untested.
    """
    if not report.findings:
        return report
    tried = {name for one in report.findings for name in SHOWN_BY.get(one.cause, ("rerun",))}
    checked = _run_check(words, sorted({"rerun", *tried} - {"resume"}), quiet)
    resumed, reason = checked, ""
    if "resume" in tried:
        try:
            resumed = _run_check(words, ["resume"], quiet)
            outcomes = (one for one in resumed.variations if one.name == "resume" and one.outcome == "skipped")
            reason = next((one.detail for one in outcomes), "")
        except SamerunError as error:  # it may resume in a way of its own; the other findings were tried
            reason = error.message
    if reason:
        echo_escaped(f"samerun: Resuming was not tested: {reason.rstrip('.')}. {RESUME_HINT}", err=True)
    judged = (
        replace(one, confirmed=judge_finding(one, resumed if SHOWN_BY.get(one.cause) == ("resume",) else checked))
        for one in report.findings
    )
    return replace(report, findings=tuple(judged))


def judge_finding(finding: LintFinding, checked: CheckReport) -> Literal["proven", "dropped", "untested"]:
    """What a check says of a finding; see `judge_findings_by_varied_runs`."""
    from samerun.lint.file_linting import list_lines_of_finding_and_of_what_it_calls

    causes: list[Hazard | FoundCause] = [*checked.causes]
    if checked.cause is not None:
        causes.append(checked.cause)
    for one in causes:
        here = os.path.realpath(one.file) == os.path.realpath(finding.file)
        if (
            one.certain
            and one.kind == finding.cause
            and here
            and any(one.line in lines for lines in list_lines_of_finding_and_of_what_it_calls(finding))
        ):
            return "proven"
    outcomes = {one.name: one.outcome for one in checked.variations}
    shown = [outcomes.get(name) for name in SHOWN_BY.get(finding.cause, ("rerun",))]
    return "dropped" if all(one == "same" for one in shown) else "untested"


def _run_check(words: list[str], variations: list[str], quiet: bool) -> CheckReport:
    """What `samerun check --fix on` reports of a script. Raises SamerunError where it does not run."""
    from samerun.base.target import resolve_target
    from samerun.base.work_folder import guarded_work_folder
    from samerun.check.execution.interruption import parse_interruptions
    from samerun.check.execution.runner import Runner
    from samerun.check.plan import RunPlan
    from samerun.check.search.findings import SamerunRunPlan, search_past_ignored_findings_and_report
    from samerun.check.search.search import Search
    from samerun.check.variations.table import VARIATIONS, parse_vary_option
    from samerun.control.startup.deterministic_start import make_deterministic_run_variables
    from samerun.record.config import WatchConfig
    from samerun.report.progress import RunProgress

    target = resolve_target("script", words)
    plan = RunPlan(target.command, target.shown, WatchConfig(folder="", user_folder=target.user_folder))
    held = SamerunRunPlan(replace(plan, held=make_deterministic_run_variables(0)), 0)
    environment = tuple(one for one in VARIATIONS if one.group == "environment")
    with ExitStack() as stack:
        folder = stack.enter_context(guarded_work_folder())
        progress = stack.enter_context(RunProgress(quiet))
        runner = stack.enter_context(closing(Runner(folder, None, progress)))
        chosen: tuple[Any, ...] = parse_vary_option(",".join(variations))
        interruptions = parse_interruptions(None, None, None) if "resume" in variations else ()
        search = Search(runner, plan, chosen, environment, interruptions=interruptions)
        report = search_past_ignored_findings_and_report(search, [], held)
        progress.clear()
        return report


# --- hints for a check
MAX_HINTS = 5
MAX_HINTED_FILES = 60


def add_lint_hints_if_uncertain(report: CheckReport, words: Sequence[str]) -> CheckReport:
    """The report of a check with notes of what `lint` sees, where a difference has no certain cause.

    `words`: the program as the user named it. Only findings whose kind shows under the variation that differs count.
    """
    first = report.first_difference
    if first is None or (report.cause is not None and report.cause.certain):
        return report
    from samerun.lint.file_linting import lint_file, select_rules

    begin = [word for word in words if word.endswith(".py") and os.path.isfile(word)][:1]
    files = list_files_and_local_imports([*begin, *([first.file] if os.path.isfile(first.file) else [])])
    rules = select_rules(
        ("default", "SR101", "SR135"), ()
    )  # a generator of its own may well be why two runs were seen to differ
    findings = [one for file in files for one in lint_file(file, rules).findings]
    fitting = [one for one in findings if first.variation in SHOWN_BY.get(one.cause, ("rerun",))]
    notes = [
        f"samerun lint sees at {one.file}:{one.line} ({one.code}, {one.cause}): {one.message}. No experiment has shown"
        " that it is the cause."
        for one in fitting[:MAX_HINTS]
    ]
    return replace(report, notes=(*report.notes, *notes))


def list_files_and_local_imports(entry_files: Sequence[str]) -> list[str]:
    """These files and those beside them that they import, as far as imports are written out; at most a few dozen."""
    from samerun.lint.source_files import list_imported_files

    found = list(dict.fromkeys(os.path.relpath(one) for one in entry_files))
    for file in found:  # grows while it is gone through
        if len(found) >= MAX_HINTED_FILES:
            break
        found += [one for one in list_imported_files(file, os.path.dirname(found[0])) if one not in found]
    return found[:MAX_HINTED_FILES]
