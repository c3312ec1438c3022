"""What a search found as records of a report, and the patches of a report as one file or put into the user's files."""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from samerun.base.errors import SamerunError
from samerun.base.files import write_file_atomically, write_to_file_or_stdout
from samerun.base.records import CheckReport, Divergence, FirstDifference, FoundCause, Growth, RunRecord
from samerun.base.source_edits import (
    Change,
    SourceFile,
    make_unified_diff,
    make_unquoted_patch_path,
    parse_changes,
    read_python_source,
    try_apply_changes,
)
from samerun.base.user_code import format_source_location
from samerun.check.attribution import attribution
from samerun.check.evidence.clock_uses import clock_may_affect_results
from samerun.check.evidence.results import find_first_unmatched_printed_lines
from samerun.check.evidence.situation import Situation
from samerun.check.evidence.value_differences import compare_steps_by_digest
from samerun.check.execution.runner import Run
from samerun.record.comparison.compare import Difference
from samerun.record.trace import format as f
from samerun.record.trace.run import select_events

NO_OPERATOR = "No torch operator ran where samerun could see it: only exit codes and printed lines were compared."
MOST_SHOWN_CHARACTERS = 80
"""Of a printed line."""
MOST_SHOWN_PLACES = 3


def make_first_difference_record(situation: Situation, found: attribution.AttributedCause | None) -> FirstDifference:
    """The report's `first_difference`."""
    difference = situation.difference
    event = difference.event
    if event is None:
        name = "exit code" if situation.a.exit_code != situation.b.exit_code else "process"
        name = "printed line" if difference.what == "printed" else name
        return FirstDifference(situation.variation, 0, 0, "host", "", name, "", 0, "none")
    no_inputs = event.kind != f.OPERATOR or bool(event.flags & f.NO_INPUTS)
    inputs = "none" if no_inputs else "same" if difference.what == "outputs" else "different"
    if inputs == "same" and event.flags & f.UNINITIALISED:  # not compared: uninitialised memory differs in each run
        inputs = "different"
    if difference.what == "scalars" and difference.a and difference.b and difference.a.inputs == difference.b.inputs:
        inputs = "different"
    operator = event.text if event.kind == f.DRAW and event.text else event.name or f.KIND_NAMES[event.kind]
    elements = found.elements if found is not None else None
    return FirstDifference(
        situation.variation, event.index, difference.step, event.phase, event.module, operator,
        relative_path_if_below_working_directory(event.file), event.line, inputs,
        elements.different if elements else None, elements.total if elements else None,
        elements.max_abs if elements else None, elements.max_ulp if elements else None,
        difference.role, difference.also_in,
    )  # fmt: skip


def make_printed_order_and_timing_notes(
    runs: Sequence[Run], situation: Situation | None, order_difference: Difference | None
) -> list[str]:
    """Notes on what was printed, and on runs that are the same although not all of their values are.

    `situation`: the difference that is reported; None if the runs are the same.
    """
    if situation is not None:
        if situation.difference.what != "printed":
            return []
        return [f"Only printed lines differ: {describe_printed_difference(situation.a, situation.b)}."]
    notes = []
    if runs and not runs[0].operators:
        notes.append(NO_OPERATOR)
        if any(find_first_unmatched_printed_lines(runs[0], run, with_numbers=True) for run in runs[1:]):
            notes[0] += " Numbers that differ in them come from a clock, or names of files."
    if order_difference is not None:
        notes.append(describe_order_difference(order_difference))
    return notes + describe_timing_that_may_decide(runs)


def describe_timing_that_may_decide(runs: Sequence[Run]) -> list[str]:
    """A note on runs that are the same although a clock may decide what is computed: few runs do not show it.

    A queue that is waited for with a time limit reads a clock too.
    """
    clocks: dict[str, set[int]] = defaultdict(set)
    for trace in runs[0].traces.traces.values() if runs else ():
        for event in select_events(trace, (f.CLOCK,)):
            if event.direct:
                clocks[event.file].add(event.line)
    places = [
        (file, line) for file in sorted(clocks) for line in sorted(clocks[file])
        if clock_may_affect_results({**dict.fromkeys(clocks, ()), file: (line,)})
    ]  # fmt: skip
    if not places:
        return []
    shown = [format_source_location(relative_path_if_below_working_directory(file), line) for file, line in places]
    more = f" and {len(shown) - MOST_SHOWN_PLACES} more" if len(shown) > MOST_SHOWN_PLACES else ""
    return [
        f"Time may decide what is computed, at {', '.join(shown[:MOST_SHOWN_PLACES])}{more}: these {len(runs)} runs "
        "are the same, but a slower or busier machine may decide otherwise."
    ]


def describe_printed_difference(a: Run, b: Run) -> str:
    one, other = (repr(line[:MOST_SHOWN_CHARACTERS]) for line in find_first_unmatched_printed_lines(a, b) or ("", ""))
    return f"one run prints {one}, another {other}"


def describe_order_difference(difference: Difference) -> str:
    """A note on runs that have the same results although their threads came in another order."""
    event = difference.event
    where = ""
    if event is not None and event.line:
        place = format_source_location(relative_path_if_below_working_directory(event.file), event.line)
        where = f", first in {event.name} at {place}"
    return (
        f"The runs computed other values in between{where}, as their threads, tasks or processes came in another order;"
        " what they printed, saved and held at the end is the same."
    )


def make_run_record(run: Run, is_saved: bool) -> RunRecord:
    """A run as the report lists it; `is_saved`: its folder stays."""
    return RunRecord(
        run.name, run.labels, run.exit_code, run.steps, run.events, round(run.seconds, 2),
        str(run.folder) if is_saved else None,
    )  # fmt: skip


def summarize_differing_steps(situation: Situation, growth_points: tuple[Growth, ...]) -> Divergence | None:
    """Which steps differ, and by how much after some of them; None if the program makes no step."""
    resumed = situation.resume_difference
    found = compare_steps_by_digest(situation.a, situation.b, resumed.shift if resumed is not None else 0)
    return replace(found, growth=growth_points) if found is not None else None


def make_cause_path_relative(cause: FoundCause) -> FoundCause:
    return replace(cause, file=relative_path_if_below_working_directory(cause.file))


def relative_path_if_below_working_directory(path: str) -> str:
    """A path relative to the working directory if the file lies below it; else unchanged."""
    if not path:
        return ""
    try:
        shown = os.path.relpath(path)
    except (ValueError, OSError):
        return path
    return path if shown.startswith("..") else shown


# --- patches
@dataclass(frozen=True)
class PatchedFile:
    """A file of the program, and what becomes of it. `left_out`: changes that overlap with others."""

    file: str
    read: SourceFile
    after: str
    left_out: int

    def to_patch_bytes(self) -> bytes:
        head, _, body = make_unified_diff(
            make_unquoted_patch_path(self.file), self.read.text_with_bom, self.after
        ).partition("\n@@")
        return os.fsencode(head) + ("\n@@" + body).encode(self.read.encoding)


def compute_patched_files(report: CheckReport, certain_only: bool = False) -> list[PatchedFile]:
    """The files that the fixes of a report change, with all of their changes; `certain_only`: of confirmed causes.

    Raises SamerunError for a file that is no longer what the fixes were made for.
    """
    changes: dict[str, list[Change]] = {}
    for file, patch, certain in _iterate_cause_patches(report):
        if certain_only and not certain:
            continue
        changes.setdefault(file, []).extend(parse_changes(patch))
    return [_compute_patched_file(file, each) for file, each in changes.items()]


class CausePatch(NamedTuple):
    """The patch of one cause, and whether an experiment confirmed that cause."""

    file: str
    patch: str
    cause_is_certain: bool


def _iterate_cause_patches(report: CheckReport) -> Iterator[CausePatch]:
    if report.cause is not None and report.fix is not None and report.fix.patch:
        yield CausePatch(report.cause.file, report.fix.patch, report.cause.certain)
    for hazard in report.causes:
        if not hazard.ignored and hazard.fix is not None and hazard.fix.patch:
            yield CausePatch(hazard.file, hazard.fix.patch, hazard.certain)


def _compute_patched_file(file: str, changes: list[Change]) -> PatchedFile:
    try:
        read = read_python_source(file)
        made = try_apply_changes(read.text_with_bom, changes)
    except (OSError, SyntaxError, ValueError):
        made = None
    if made is None:
        raise _make_file_changed_error(file)
    return PatchedFile(file, read, *made)


def write_patched_files(files: list[PatchedFile], check_started_at: float) -> None:
    """Replace each file by its patched version, atomically. `check_started_at`: in seconds since 1970.

    Raises SamerunError, before anything is written, for a file that was changed since, or lies outside of the working
    directory, or cannot be written.
    """
    for patched in files:
        if not _is_in_working_directory(patched.file):
            raise SamerunError(
                f"--apply: {patched.file} lies outside of this folder; nothing was changed.",
                hint="Write the patch to a file with --patch and apply it there.",
            )
        state = os.stat(patched.file)
        # The line that was found is that of the program as it ran. ctime: editors and git can set mtime back.
        if max(state.st_ctime, state.st_mtime) > check_started_at or read_python_source(patched.file) != patched.read:
            raise _make_file_changed_error(patched.file)
        if not os.access(patched.file, os.W_OK) or not os.access(
            os.path.dirname(os.path.realpath(patched.file)), os.W_OK
        ):
            raise SamerunError(
                f"--apply: {patched.file} cannot be written; nothing was changed.",
                hint="Check its permissions, or write a patch with --patch FILE.",
            )
    for patched in files:
        path = Path(os.path.realpath(patched.file))
        mode = stat.S_IMODE(path.stat().st_mode)
        try:
            write_file_atomically(path, patched.after.encode(patched.read.encoding))
            os.chmod(path, mode)
        except OSError as error:
            raise SamerunError(f"--apply: {patched.file}: {error.strerror}.") from error


def _is_in_working_directory(file: str) -> bool:
    return Path(os.path.realpath(file)).is_relative_to(os.path.realpath("."))


def _make_file_changed_error(file: str) -> SamerunError:
    return SamerunError(
        f"{file} was changed while the program was checked, so its patch may not fit; the file was left alone.",
        hint="Run the check again.",
    )


def write_patch_or_apply_confirmed_fixes(
    report: CheckReport, patch_path: str | None, apply: bool, check_started_at: float
) -> list[str]:
    """Do what `--patch FILE` and `--apply` ask for; returns what to tell people. Raises SamerunError."""
    messages = []
    if patch_path is not None:
        files = compute_patched_files(report)
        write_to_file_or_stdout("--patch", patch_path, b"".join(patched.to_patch_bytes() for patched in files))
        if not files:
            messages.append(f"--patch {patch_path}: no change that could be made mechanically; the patch is empty.")
        messages += _make_notes_on_left_out_overlaps(f"--patch {patch_path}", files)
    if apply:
        files = compute_patched_files(report, certain_only=True)
        write_patched_files(files, check_started_at)
        messages += [f"--apply: changed {patched.file}. Run the check again." for patched in files]
        messages += _make_notes_on_left_out_overlaps("--apply", files)
        if not files and compute_patched_files(report):
            messages.append(
                "--apply: the cause is not confirmed by an experiment, so nothing was changed; see --patch."
            )
        elif not files:
            messages.append("--apply: no change that could be made mechanically; nothing was changed.")
    return messages


def _make_notes_on_left_out_overlaps(option: str, files: list[PatchedFile]) -> list[str]:
    return [
        f"{option}: {patched.left_out} of the changes of {patched.file} overlap with others and were left out; "
        "check again afterwards."
        for patched in files if patched.left_out
    ]  # fmt: skip
