"""The difference of two runs, as plain values: by their receipts, and by operator where traces were kept."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from samerun.base.errors import SamerunError
from samerun.record.comparison.compare import Difference, find_first_difference
from samerun.record.receipt.assemble import Assembled
from samerun.record.receipt.compare_receipts import Compared, FirstStep, Tables, compare, holds_results
from samerun.record.receipt.process_section import relative
from samerun.record.receipt.receipt_file import read, traces_of
from samerun.record.receipt.side_file import in_order, read_tables
from samerun.record.receipt.surroundings import differences, start_differences
from samerun.record.trace.run import Event, RunTraces

SAME, DIFFERENT, TROUBLE = "same", "different", "trouble"
ONLY_ENDINGS = (
    "Neither receipt holds an optimizer step, a model, a mark or a file: only how the runs ended was compared. "
    "Mark results with samerun.mark(), or record both runs with --trace ops."
)


@dataclass(frozen=True)
class Side:
    """One of the two runs: its receipt with its steps, or only traces, or both."""

    name: str
    receipt: dict[str, Any] | None
    tables: Tables
    traces: Path | None


def side_from(path: Path, name: str = "") -> Side:
    """A receipt, or a folder of traces; `name`: what to call it. Raises SamerunError for anything else."""
    name = name or str(path)
    if os.path.isdir(path):
        if not any(path.glob("*.trace")):
            raise SamerunError(f"{path} is a folder without traces.", hint="Name a receipt, or a folder of one run.")
        return Side(name, None, {}, path)
    receipt = read(path)
    traces = traces_of(path, receipt["digest"])
    return Side(name, receipt, read_tables(path, receipt), traces if traces.is_dir() else None)


def side_of(name: str, made: Assembled) -> Side:
    """A run that was just made."""
    names = [(role, part) for role, part, _ in in_order(made.receipt["processes"])]
    return Side(name, made.receipt, dict(zip(names, made.tables, strict=True)), None)


def diff(a: Side, b: Side, ignore: Iterable[str] = ()) -> dict[str, Any]:
    """The answer of `samerun diff`. `ignore`: patterns of output files that do not count."""
    if a.receipt is None or b.receipt is None:
        if a.traces is None or b.traces is None:
            raise SamerunError(
                "A receipt without traces cannot be compared with a folder of traces.",
                hint="Compare two receipts, or two folders of traces.",
            )
        return _by_operator_alone(a, b)
    left, right = (_without(side.receipt or {}, tuple(ignore)) for side in (a, b))
    compared = compare(left, right, a.tables, b.tables)
    first, notes = compared.first, _notes(a, b)
    if first is None and _ending(left) != _ending(right):
        first = FirstStep("ended", "main", 0, (_ending(left), _ending(right)))
    if first is None and not holds_results(left) and not holds_results(right):
        operator = _first_operator(a, b)
        if operator is not None:
            first = FirstStep(operator.what, operator.role, operator.step, ())
        elif a.traces is None or b.traces is None:
            notes.append(ONLY_ENDINGS)
    cut_off = [side.name for side in (a, b) if side.receipt and not side.receipt["ended"]["complete"]]
    verdict = DIFFERENT if first is not None else SAME
    if cut_off and (first is None or first.what in ("count", "final", "output", "ended", "saved", "process")):
        verdict = TROUBLE  # what is missing may only have been lost
        notes.append(f"As far as both go nothing differs, but the record of {' and '.join(cut_off)} is not whole.")
    at_start = list(start_differences(left, right, _drawn_from(compared))) if verdict == DIFFERENT else []
    return {
        "verdict": verdict,
        "a": a.name,
        "b": b.name,
        "steps": compared.steps,
        "first_difference": None if first is None or verdict == TROUBLE else _first(first, a, b),
        "generators_differ_earlier": _earlier(compared) if verdict == DIFFERENT else None,
        "others": [_told(each) for each in compared.others] if verdict == DIFFERENT else [],
        "surroundings": [asdict(each) for each in (*at_start, *differences(left, right))],
        "notes": notes,
    }


def _without(receipt: dict[str, Any], ignore: tuple[str, ...]) -> dict[str, Any]:
    if not ignore:
        return receipt
    processes = {
        role: {**one, "outputs": [e for e in one["outputs"] if not any(fnmatch(e["path"], p) for p in ignore)]}
        for role, one in receipt["processes"].items()
    }
    return {**receipt, "processes": processes}


def _ending(receipt: dict[str, Any]) -> str:
    ended = receipt["ended"]
    return f"signal {ended['signal']}" if ended["signal"] is not None else f"exit code {ended['exit_code']}"


def _notes(a: Side, b: Side) -> list[str]:
    found = []
    for side in (a, b):
        ranks = (side.receipt or {}).get("ranks")
        if ranks and ranks["drift"]:
            found.append(drift_in_words(side.name, ranks))
    return found


def drift_in_words(name: str, ranks: dict[str, Any]) -> str:
    """One sentence."""
    drift = ranks["drift"]
    groups = " | ".join(", ".join(group) for group in drift["groups"])
    if drift["from_the_start"]:
        return (
            f"{name}: the ranks' parameters differ from step 1 on ({groups}): each holds a part of the model, or "
            "they began from different ones."
        )
    return f"{name}: the ranks drift apart: after step {drift['step']} their parameters differ ({groups})."


def _drawn_from(compared: Compared) -> tuple[str, ...]:
    """The generators that are in another state after the first step: those that the program did not seed itself."""
    return compared.earlier[2] if compared.earlier is not None and compared.earlier[1] == 1 else ()


def _earlier(compared: Compared) -> dict[str, Any] | None:
    if compared.earlier is None:
        return None
    process, step, columns = compared.earlier
    return {"process": process, "step": step, "what": list(columns)}


def _told(first: FirstStep) -> dict[str, Any]:
    return {"what": first.what, "process": first.process, "step": first.step, "names": list(first.names)}


def _first(first: FirstStep, a: Side, b: Side) -> dict[str, Any]:
    return {**_told(first), "operator": _operator(_first_operator(a, b))}


def _first_operator(a: Side, b: Side) -> Difference | None:
    """None also where traces were not kept."""
    if a.traces is None or b.traces is None:
        return None
    return find_first_difference(RunTraces(a.traces), RunTraces(b.traces))


def _by_operator_alone(a: Side, b: Side) -> dict[str, Any]:
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
            "operator": _operator(found),
        }
    return {
        "verdict": SAME if found is None else DIFFERENT,
        "a": a.name,
        "b": b.name,
        "steps": min(run.step_count() for run in runs),
        "first_difference": told,
        "generators_differ_earlier": None,
        "others": [],
        "surroundings": [],
        "notes": [f"{a.name}: {each}" for each in runs[0].failures]
        + [f"{b.name}: {each}" for each in runs[1].failures],
    }


def _operator(found: Difference | None) -> dict[str, Any] | None:
    """The first operator that differs: its name, phase, module, line, and what of it differs."""
    event: Event | None = found.event if found is not None else None
    if found is None or event is None:
        return None
    return {
        "what": found.what,
        "process": found.role,
        "step": found.step,
        "name": event.name,
        "phase": event.phase,
        "module": event.module,
        "file": relative(event.file) if event.file else "",
        "line": event.line,
        "only_in": found.extra_in.upper() or None,
    }


def in_words(record: dict[str, Any]) -> str:
    """The first difference in one line; "" where there is none."""
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
