"""How a difference and its cause become records of the report."""

from __future__ import annotations

import os
from dataclasses import replace

from samerun.base.records import FirstDifference, FoundCause
from samerun.check.attribution import attribution
from samerun.check.evidence.situation import Situation
from samerun.record.trace import format as f


def make_first_difference_record(situation: Situation, found: attribution.AttributedCause | None) -> FirstDifference:
    """The report's `first_difference`."""
    difference = situation.difference
    event = difference.event
    if event is None:
        name = "exit code" if situation.a.exit_code != situation.b.exit_code else "process"
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
    )  # fmt: skip


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
