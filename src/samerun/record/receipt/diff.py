"""Compare two runs by their receipts, and by operator if traces were kept; the result is plain values.

Found is the first step, or the first final result, that differs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from samerun.base.errors import SamerunError
from samerun.record.comparison.compare import Difference, find_first_difference
from samerun.record.receipt.assemble import NewReceipt, redact_and_relativize_path
from samerun.record.receipt.environment_diff import (
    EnvironmentDifference,
    find_environment_differences,
    iter_initial_state_differences,
)  # fmt: skip
from samerun.record.receipt.receipt_file import read_and_verify_digest, traces_path
from samerun.record.receipt.step_table import (
    StepTable,
    StepTablesOfReceipt,
    find_first_differing_step,
    iter_table_records_in_file_order,
    read_step_tables,
)
from samerun.record.trace.run import Event, RunTraces

AT_END = 1 << 60


@dataclass(frozen=True)
class ResultDifference:
    """One difference between the results of two runs.

    what: "steps" (columns differ after step `step`), "count" (one run made more steps), "mark", "saved", "final",
    "output", "process" (only one run has it) or "ended". step: from 1; 0 if it belongs to no step. names: the
    differing columns, the mark, the files or the models. order: sort key, in half steps.
    """

    what: str
    process: str
    step: int
    names: tuple[str, ...]
    order: int = field(default=AT_END, repr=False)


@dataclass(frozen=True)
class ResultComparison:
    """The comparison of all results. `first`: None if all are equal. `steps`: number of compared steps.

    `earlier`: (process, step, columns) of the first step at which only generators or batches differ, if it precedes
    the first difference in values.
    """

    first: ResultDifference | None
    steps: int
    earlier: tuple[str, int, tuple[str, ...]] | None
    others: tuple[ResultDifference, ...] = ()
    """Further differences, after the first."""


def compare_runs_ignoring_order(
    a: dict[str, Any], b: dict[str, Any], tables_a: StepTablesOfReceipt, tables_b: StepTablesOfReceipt
) -> ResultComparison:
    """Compare the results of two receipts. Processes without results, which only read files, are not compared."""
    found: list[ResultDifference] = []
    steps = 0
    earlier: list[tuple[str, int, tuple[str, ...]]] = []
    for role in sorted({*a["processes"], *b["processes"]}, key=lambda name: (name != "main", len(name), name)):
        one, other = a["processes"].get(role), b["processes"].get(role)
        if one is None or other is None:
            if _has_process_results(one or other or {}):
                found.append(ResultDifference("process", role, 0, ("only in " + ("B" if one is None else "A"),), 0))
            continue
        left, right = tables_a[role, "values"], tables_b[role, "values"]
        steps += min(left.count, right.count)
        step_difference = _find_first_step_difference(role, left, right)
        mark_difference = _find_first_mark_difference(role, one["marks"], other["marks"])
        found += [each for each in (step_difference, mark_difference) if each is not None]
        found += _find_final_result_differences(role, one, other)
        at = find_first_differing_step(tables_a[role, "evidence"], tables_b[role, "evidence"])
        if at is not None:
            earlier.append((role, at[0] + 1, at[1]))
    # A stable sort keeps the main process first. Of ranks that differ after the same step those come first whose loss
    # differs: it is computed before gradients are exchanged, which carry a difference to all.
    found.sort(key=lambda each: (each.order, each.what == "steps" and "loss" not in each.names))
    first = found[0] if found else None
    before = [e for e in earlier if first is None or first.order == AT_END or e[1] <= max(first.step, 1)]
    return ResultComparison(first, steps, min(before, key=lambda e: e[1]) if before else None, tuple(found[1:]))


def _find_first_step_difference(role: str, a: StepTable, b: StepTable) -> ResultDifference | None:
    at = find_first_differing_step(a, b)
    if at is not None:
        return ResultDifference("steps", role, at.row + 1, at.columns, 2 * at.row + 2)
    if a.count != b.count:
        fewer = min(a.count, b.count)
        return ResultDifference("count", role, fewer + 1, (f"{a.count} steps", f"{b.count} steps"), 2 * fewer + 2)
    return None


def _find_first_mark_difference(role: str, a: list[dict[str, Any]], b: list[dict[str, Any]]) -> ResultDifference | None:
    for number in range(max(len(a), len(b))):
        one = a[number] if number < len(a) else None
        other = b[number] if number < len(b) else None
        if one != other:
            present = one or other or {}
            return ResultDifference("mark", role, present["step"], (str(present["name"]),), 2 * present["step"] + 1)
    return None


def _find_final_result_differences(role: str, a: dict[str, Any], b: dict[str, Any]) -> list[ResultDifference]:
    found = []
    for what, key, by in (("saved", "saved", "name"), ("final", "final", "model"), ("output", "outputs", "path")):
        if a[key] == b[key]:
            continue
        pairs = [[(each[by], each["digest"]) for each in one[key]] for one in (a, b)]
        either = set(pairs[0]) ^ set(pairs[1])
        names = dict.fromkeys(name for name, digest in [*pairs[0], *pairs[1]] if (name, digest) in either)
        found.append(ResultDifference(what, role, 0, tuple(names) or ("in another order",)))
    return found


def has_any_result(receipt: dict[str, Any]) -> bool:
    """Whether a receipt holds any result to compare, besides how the run ended."""
    return any(_has_process_results(one) for one in receipt["processes"].values())


def _has_process_results(process_record: dict[str, Any]) -> bool:
    return bool(
        process_record["steps"]["values"]["count"]
        or process_record["marks"]
        or process_record["saved"]
        or process_record["final"]
        or process_record["outputs"]
    )


SAME, DIFFERENT, TROUBLE = "same", "different", "trouble"
NOTHING_TO_COMPARE = (
    "Neither receipt holds an optimizer step, a model, a mark or a file: only how the runs ended was compared. "
    "Mark results with samerun.mark(), or record both runs with --trace ops."
)


@dataclass(frozen=True)
class ComparedRun:
    """One of two runs to compare: its receipt with its step tables, or only traces, or both."""

    name: str
    receipt: dict[str, Any] | None
    tables: StepTablesOfReceipt
    traces: Path | None


def load_run(path: Path, name: str = "") -> ComparedRun:
    """Load a receipt, or a folder of traces; `name`: how to call it. Raises SamerunError for anything else."""
    name = name or str(path)
    if os.path.isdir(path):
        if not any(path.glob("*.trace")):
            raise SamerunError(f"{path} is a folder without traces.", hint="Name a receipt, or a folder of one run.")
        return ComparedRun(name, None, {}, path)
    receipt = read_and_verify_digest(path)
    traces = traces_path(path, receipt["digest"])
    return ComparedRun(name, receipt, read_step_tables(path, receipt), traces if traces.is_dir() else None)


def wrap_new_run(name: str, new_receipt: NewReceipt) -> ComparedRun:
    """A run that has just ended, whose receipt is still in memory."""
    names = [(role, part) for role, part, _ in iter_table_records_in_file_order(new_receipt.receipt["processes"])]
    return ComparedRun(name, new_receipt.receipt, dict(zip(names, new_receipt.tables, strict=True)), None)


def diff_runs(a: ComparedRun, b: ComparedRun, ignored_output_patterns: Iterable[str] = ()) -> dict[str, Any]:
    """The result of `samerun diff`. `ignored_output_patterns`: patterns of output files that are not compared."""
    if a.receipt is None or b.receipt is None:
        if a.traces is None or b.traces is None:
            raise SamerunError(
                "A receipt without traces cannot be compared with a folder of traces.",
                hint="Compare two receipts, or two folders of traces.",
            )
        return _diff_traces(a, b)
    left, right = (_drop_ignored_outputs(side.receipt or {}, tuple(ignored_output_patterns)) for side in (a, b))
    compared = compare_runs_ignoring_order(left, right, a.tables, b.tables)
    first, notes = compared.first, _describe_rank_drifts(a, b)
    if first is None and _describe_ending(left) != _describe_ending(right):
        first = ResultDifference("ended", "main", 0, (_describe_ending(left), _describe_ending(right)))
    if first is None and not has_any_result(left) and not has_any_result(right):
        operator = _find_first_operator_difference(a, b)
        if operator is not None:
            first = ResultDifference(operator.what, operator.role, operator.step, ())
        elif a.traces is None or b.traces is None:
            notes.append(NOTHING_TO_COMPARE)
    cut_off = [side.name for side in (a, b) if side.receipt and not side.receipt["ended"]["complete"]]
    verdict = DIFFERENT if first is not None else SAME
    if cut_off and (first is None or first.what in ("count", "final", "output", "ended", "saved", "process")):
        verdict = TROUBLE  # the missing part may only have been lost, not different
        notes.append(f"As far as both go nothing differs, but the record of {' and '.join(cut_off)} is not whole.")
    at_start: list[EnvironmentDifference] = []
    if verdict == DIFFERENT:
        at_start = list(iter_initial_state_differences(left, right, _generators_differing_at_step_1(compared)))
    return {
        "verdict": verdict,
        "a": a.name,
        "b": b.name,
        "steps": compared.steps,
        "first_difference": None
        if first is None or verdict == TROUBLE
        else _build_first_difference_record(first, compared.others, a, b),
        "generators_differ_earlier": _build_earlier_evidence_record(compared) if verdict == DIFFERENT else None,
        "others": [_build_result_record(each) for each in compared.others] if verdict == DIFFERENT else [],
        "surroundings": [asdict(each) for each in (*at_start, *find_environment_differences(left, right))],
        "notes": notes,
    }


def _drop_ignored_outputs(receipt: dict[str, Any], patterns: tuple[str, ...]) -> dict[str, Any]:
    if not patterns:
        return receipt
    processes = {
        role: {**one, "outputs": [e for e in one["outputs"] if not any(fnmatch(e["path"], p) for p in patterns)]}
        for role, one in receipt["processes"].items()
    }
    return {**receipt, "processes": processes}


def _describe_ending(receipt: dict[str, Any]) -> str:
    ended = receipt["ended"]
    return f"signal {ended['signal']}" if ended["signal"] is not None else f"exit code {ended['exit_code']}"


def _describe_rank_drifts(a: ComparedRun, b: ComparedRun) -> list[str]:
    found = []
    for side in (a, b):
        ranks = (side.receipt or {}).get("ranks")
        if ranks and ranks["drift"]:
            found.append(describe_rank_drift(side.name, ranks))
    return found


def describe_rank_drift(name: str, ranks: dict[str, Any]) -> str:
    """One sentence about ranks whose parameters differ."""
    drift = ranks["drift"]
    groups = " | ".join(", ".join(group) for group in drift["groups"])
    if drift["from_the_start"]:
        return (
            f"{name}: the ranks' parameters differ from step 1 on ({groups}): each holds a part of the model, or "
            "they began from different ones."
        )
    return f"{name}: the ranks drift apart: after step {drift['step']} their parameters differ ({groups})."


def _generators_differing_at_step_1(compared: ResultComparison) -> tuple[str, ...]:
    """The generators that differ after the first step already: the program did not seed them itself."""
    return compared.earlier[2] if compared.earlier is not None and compared.earlier[1] == 1 else ()


def _build_earlier_evidence_record(compared: ResultComparison) -> dict[str, Any] | None:
    if compared.earlier is None:
        return None
    process, step, columns = compared.earlier
    return {"process": process, "step": step, "what": list(columns)}


def _build_result_record(first: ResultDifference) -> dict[str, Any]:
    return {"what": first.what, "process": first.process, "step": first.step, "names": list(first.names)}


def _build_first_difference_record(
    first: ResultDifference, others: tuple[ResultDifference, ...], a: ComparedRun, b: ComparedRun
) -> dict[str, Any]:
    """`also_in`: other processes that differ after the same step, and as early in it as a receipt can tell."""
    told = (first.what, first.order, "loss" in first.names)
    same = [each.process for each in others if (each.what, each.order, "loss" in each.names) == told]
    operator = _build_operator_record(_find_first_operator_difference(a, b))
    return {**_build_result_record(first), "also_in": same if first.order != AT_END else [], "operator": operator}


def _find_first_operator_difference(a: ComparedRun, b: ComparedRun) -> Difference | None:
    """The first operator that differs; None also if traces were not kept."""
    if a.traces is None or b.traces is None:
        return None
    return find_first_difference(RunTraces(a.traces), RunTraces(b.traces))


def _diff_traces(a: ComparedRun, b: ComparedRun) -> dict[str, Any]:
    assert a.traces is not None and b.traces is not None
    runs = RunTraces(a.traces), RunTraces(b.traces)
    found = find_first_difference(*runs)
    told = None
    if found is not None:
        told = {
            "what": found.what,
            "process": found.role,
            "step": found.step,
            "names": [],
            "also_in": list(found.also_in),
            "operator": _build_operator_record(found),
        }
    return {
        "verdict": SAME if found is None else DIFFERENT,
        "a": a.name,
        "b": b.name,
        "steps": min(run.max_step_count() for run in runs),
        "first_difference": told,
        "generators_differ_earlier": None,
        "others": [],
        "surroundings": [],
        "notes": [f"{a.name}: {each}" for each in runs[0].failures]
        + [f"{b.name}: {each}" for each in runs[1].failures],
    }


def _build_operator_record(difference: Difference | None) -> dict[str, Any] | None:
    """The record of the first operator that differs."""
    event: Event | None = difference.event if difference is not None else None
    if difference is None or event is None:
        return None
    return {
        "what": difference.what,
        "process": difference.role,
        "also_in": list(difference.also_in),
        "step": difference.step,
        "name": event.name,
        "phase": event.phase,
        "module": event.module,
        "file": redact_and_relativize_path(event.file) if event.file else "",
        "line": event.line,
        "only_in": difference.extra_in.upper() or None,
    }


def describe_first_difference(record: dict[str, Any]) -> str:
    """The first difference in one line; without one, the notes."""
    first = record["first_difference"]
    if first is None:
        return " ".join(record["notes"])
    names = ", ".join(first["names"])
    before = record["generators_differ_earlier"]
    hint = f" (already at step {before['step']}: {', '.join(before['what'])})" if before else ""
    if first["what"] == "steps":
        return f"First difference: optimizer step {first['step']}: {names}{hint}"
    if first["what"] == "mark":
        return f"First difference: {names}, after {first['step']} optimizer steps{hint}"
    return f"First difference: {first['what']} {names}{hint}"
