"""Whether two runs computed the same, by their receipts: the first step, or the first result, that differs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from samerun.record.receipt.step_table import Table, first_unequal

Tables = dict[tuple[str, str], Table]
AT_END = 1 << 60


@dataclass(frozen=True)
class FirstStep:
    """Where two runs part.

    what: "steps" (columns differ after step `step`), "count" (one run made more), "mark", "saved", "final",
    "output" or "process" (only one run has it). step: from 1; 0 where it belongs to none. names: the columns,
    the mark, the files or models.
    """

    what: str
    process: str
    step: int
    names: tuple[str, ...]
    order: int = field(default=AT_END, repr=False)


@dataclass(frozen=True)
class Compared:
    """`first`: None where everything is the same. `steps`: how many were compared, over all processes.

    `earlier`: (process, step, columns) of the first step where only generators or batches differ, if that comes
    before the values.
    """

    first: FirstStep | None
    steps: int
    earlier: tuple[str, int, tuple[str, ...]] | None
    others: tuple[FirstStep, ...] = ()
    """Results at the end that differ too."""


def compare(a: dict[str, Any], b: dict[str, Any], tables_a: Tables, tables_b: Tables) -> Compared:
    """Compare what two receipts say was computed. Processes that only read files are not compared."""
    found: list[FirstStep] = []
    steps = 0
    earlier: list[tuple[str, int, tuple[str, ...]]] = []
    for role in sorted({*a["processes"], *b["processes"]}, key=lambda name: (name != "main", len(name), name)):
        one, other = a["processes"].get(role), b["processes"].get(role)
        if one is None or other is None:
            if _has_results(one or other or {}):
                found.append(FirstStep("process", role, 0, ("only in " + ("B" if one is None else "A"),), 0))
            continue
        left, right = tables_a[role, "values"], tables_b[role, "values"]
        steps += min(left.count, right.count)
        found += _steps(role, left, right)
        found += _marks(role, one["marks"], other["marks"])
        found += _results(role, one, other)
        at = first_unequal(tables_a[role, "evidence"], tables_b[role, "evidence"])
        if at is not None:
            earlier.append((role, at[0] + 1, at[1]))
    found.sort(key=lambda each: each.order)  # stable: the main process first
    first = found[0] if found else None
    before = [e for e in earlier if first is None or first.order == AT_END or e[1] <= max(first.step, 1)]
    return Compared(first, steps, min(before, key=lambda e: e[1]) if before else None, tuple(found[1:]))


def _steps(role: str, a: Table, b: Table) -> list[FirstStep]:
    at = first_unequal(a, b)
    if at is not None:
        return [FirstStep("steps", role, at[0] + 1, at[1], 2 * at[0] + 2)]
    if a.count != b.count:
        fewer = min(a.count, b.count)
        return [FirstStep("count", role, fewer + 1, (f"{a.count} steps", f"{b.count} steps"), 2 * fewer + 2)]
    return []


def _marks(role: str, a: list[dict[str, Any]], b: list[dict[str, Any]]) -> list[FirstStep]:
    for number in range(max(len(a), len(b))):
        one = a[number] if number < len(a) else None
        other = b[number] if number < len(b) else None
        if one != other:
            present = one or other or {}
            return [FirstStep("mark", role, present["step"], (str(present["name"]),), 2 * present["step"] + 1)]
    return []


def _results(role: str, a: dict[str, Any], b: dict[str, Any]) -> list[FirstStep]:
    found = []
    for what, key, by in (("saved", "saved", "name"), ("final", "final", "model"), ("output", "outputs", "path")):
        if a[key] == b[key]:
            continue
        pairs = [[(each[by], each["digest"]) for each in one[key]] for one in (a, b)]
        either = set(pairs[0]) ^ set(pairs[1])
        names = dict.fromkeys(name for name, digest in [*pairs[0], *pairs[1]] if (name, digest) in either)
        found.append(FirstStep(what, role, 0, tuple(names) or ("in another order",)))
    return found


def holds_results(receipt: dict[str, Any]) -> bool:
    """Whether there is anything in it to compare but how the run ended."""
    return any(_has_results(one) for one in receipt["processes"].values())


def _has_results(one: dict[str, Any]) -> bool:
    return bool(one["steps"]["values"]["count"] or one["marks"] or one["saved"] or one["final"] or one["outputs"])
