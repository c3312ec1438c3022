"""Inputs from outside the program: environment variables and files."""

from __future__ import annotations

import os

from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import (
    Situation,
    Suspect,
    does_only_one_run_have_file,
    relative_event_distance,
)
from samerun.record import pins
from samerun.record.comparison.compare import HostEventDifference
from samerun.record.trace import format as f
from samerun.record.trace.run import RunTraces, select_events

# The surroundings decide: locale, timezone, a variable, a folder.
SURROUNDINGS = ("locale", "timezone", "allocator", "environment_noise", "working_directory", "home", "umask")


def find_suspect_reads_of_environment_variables(situation: Situation) -> list[Suspect]:
    own = situation.variation.startswith("env:")
    if situation.variation not in SURROUNDINGS and not own:
        return []
    reads = [c for c in situation.select_clues(f.ENVIRONMENT) if c.a.direct]
    if own:
        reads = [c for c in reads if c.a.name == situation.variation[4:].split("=")[0]]
    found: dict[tuple[str, int], Suspect] = {}
    for read in reversed(reads):
        why = f"{read.a.name} is read at line {read.a.line}"
        suspect = Suspect("environment-variable", read.a.file, read.a.line, (why,), 0.0)
        found.setdefault(read.source_location, suspect)
    return list(found.values())


ENVIRONMENT_VARIABLE = Cause(
    "environment-variable",
    find_suspect_reads_of_environment_variables,
    "do not depend on the machine's settings: pass the value as an argument, convert times in UTC",
    "Sorting by locale, parsing numbers and dates, and local time depend on LC_ALL and TZ; names of users and"
    " folders, and the permissions of new files, change with the machine as well.",
)


# A file that was read, or looked for, is another one or was not there.
FILE_QUERIES = ("exists", "lexists", "isfile", "isdir", "getsize")


def find_data_changed_suspects(situation: Situation) -> list[Suspect]:
    found = []
    opened = {clue.source_location for clue in situation.select_clues(f.FILE)}
    in_both = list_kinds_and_paths_of_file_events(situation.a.traces) & list_kinds_and_paths_of_file_events(
        situation.b.traces
    )
    for clue in situation.select_clues(f.FILE, f.LOAD, f.FACT):
        if clue.kind == f.LOAD and clue.source_location in opened:  # the same file, known there by its whole path
            continue
        if clue.b is None and (clue.kind, clue.a.text) in in_both:
            continue  # in another order: the file was there in both runs
        asked = clue.kind == f.FACT
        if asked and not is_file_presence_or_size_difference(clue):
            continue
        name = os.path.basename(clue.a.text) or "a file"
        if asked:
            what = f"{clue.a.name}() at line {clue.a.line} gave another answer about {name}"
        elif clue.b is None:
            what = f"{name} was there to be read by one run only, at line {clue.a.line}"
        else:
            what = f"{name} held something else when it was read at line {clue.a.line}"
        path = path_to_leave_out_or_empty(clue.a.text)
        without = (path,) if path and (asked or clue.b is None) else ()
        in_copied_folder = bool(path) and not os.path.isabs(path)
        found.append(
            Suspect("data-changed", clue.a.file, clue.a.line,
                    (what, "if an earlier run wrote it, the program goes on from its own results"),
                    (1.5 if asked else 1.6) + relative_event_distance(situation, clue),
                    (pins.FOLDER,) if without or in_copied_folder else (), without=without)
        )  # fmt: skip
    return found[:3]


def list_kinds_and_paths_of_file_events(traces: RunTraces) -> set[tuple[int, str]]:
    """(kind of event, path) of every file that a process of the run opened, loaded or asked about."""
    kinds = f.FILE, f.LOAD, f.FACT
    return {(event.kind, event.text) for trace in traces.traces.values() for event in select_events(trace, kinds)}


def is_file_presence_or_size_difference(clue: HostEventDifference) -> bool:
    """Whether both runs asked about a file, and its size differs, or only one of them has it."""
    if clue.b is None:
        return False
    if clue.a.name == "os.stat":
        return does_only_one_run_have_file(clue)
    return clue.a.name.startswith("os.path.") and clue.a.name[8:] in FILE_QUERIES


def path_to_leave_out_or_empty(path: str) -> str:
    """A file as `RunPlan.without` names it; "" if neither the working directory nor the home directory holds it."""
    shown = os.path.relpath(path) if path else ""
    if not shown.startswith(os.pardir):
        return shown
    home, absolute = os.path.join(os.path.expanduser("~"), ""), os.path.abspath(path)
    return absolute if absolute.startswith(home) else ""


DATA_CHANGED = Cause(
    "data-changed",
    find_data_changed_suspects,
    "make every run start from the same files (remove what an earlier run left, or write elsewhere)",
    "A program that reads a file which it or something else has changed since the last run does not see the"
    " same data. The common case is a checkpoint left in the working directory.",
)
