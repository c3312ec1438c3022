"""Compare the results of two runs by their receipts: find the first step, or the first final result, that differs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from samerun.record.receipt.step_table import StepTable, find_first_differing_step

Tables = dict[tuple[str, str], StepTable]
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


def compare_results(a: dict[str, Any], b: dict[str, Any], tables_a: Tables, tables_b: Tables) -> ResultComparison:
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
        found += _compare_steps(role, left, right)
        found += _compare_marks(role, one["marks"], other["marks"])
        found += _compare_final_results(role, one, other)
        at = find_first_differing_step(tables_a[role, "evidence"], tables_b[role, "evidence"])
        if at is not None:
            earlier.append((role, at[0] + 1, at[1]))
    found.sort(key=lambda each: each.order)  # a stable sort keeps the main process first
    first = found[0] if found else None
    before = [e for e in earlier if first is None or first.order == AT_END or e[1] <= max(first.step, 1)]
    return ResultComparison(first, steps, min(before, key=lambda e: e[1]) if before else None, tuple(found[1:]))


def _compare_steps(role: str, a: StepTable, b: StepTable) -> list[ResultDifference]:
    at = find_first_differing_step(a, b)
    if at is not None:
        return [ResultDifference("steps", role, at[0] + 1, at[1], 2 * at[0] + 2)]
    if a.count != b.count:
        fewer = min(a.count, b.count)
        return [ResultDifference("count", role, fewer + 1, (f"{a.count} steps", f"{b.count} steps"), 2 * fewer + 2)]
    return []


def _compare_marks(role: str, a: list[dict[str, Any]], b: list[dict[str, Any]]) -> list[ResultDifference]:
    for number in range(max(len(a), len(b))):
        one = a[number] if number < len(a) else None
        other = b[number] if number < len(b) else None
        if one != other:
            present = one or other or {}
            return [ResultDifference("mark", role, present["step"], (str(present["name"]),), 2 * present["step"] + 1)]
    return []


def _compare_final_results(role: str, a: dict[str, Any], b: dict[str, Any]) -> list[ResultDifference]:
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


def _has_process_results(one: dict[str, Any]) -> bool:
    return bool(one["steps"]["values"]["count"] or one["marks"] or one["saved"] or one["final"] or one["outputs"])
