"""Ranks that should hold the same parameters: do they?"""

from __future__ import annotations

from typing import Any

from samerun.record.receipt.process_section import Section
from samerun.record.receipt.step_table import Table, first_unequal, make_table


def ranks_of(sections: list[Section]) -> dict[str, Any] | None:
    """None for a program of one process.

    `drift`: None where the parameters are the same after every step of every rank. Otherwise the first step
    (from 1) after which they are not, and the groups of ranks that agree there. `from_the_start`: they never
    agreed: each rank holds a part of the model, or they began from different ones.
    """
    ranks = [one for one in sections if one.is_principal and one.role != "main"]
    if len(ranks) < 2:
        return None
    tables = {one.role: _parameters(one.values) for one in sorted(ranks, key=lambda one: _number(one.role))}
    reference = next(iter(tables.values()))
    found = [first_unequal(reference, table) for table in tables.values()]
    steps = [at[0] for at in found if at is not None]
    told: dict[str, Any] = {"count": len(ranks), "steps": {role: table.count for role, table in tables.items()}}
    if not steps:
        return {**told, "drift": None}
    first = min(steps)
    groups: dict[bytes, list[str]] = {}
    for role, table in tables.items():
        if table.count > first:
            groups.setdefault(table.row(first)["params"], []).append(role)
    return {**told, "drift": {"step": first + 1, "groups": list(groups.values()), "from_the_start": first == 0}}


def _parameters(table: Table) -> Table:
    if "params" not in table.columns:
        return make_table((), b"")
    at, size = table.columns.index("params") * 16, table.row_bytes
    rows = b"".join(bytes(table.rows[i * size + at : i * size + at + 16]) for i in range(table.count))
    return make_table(("params",), rows)


def _number(role: str) -> int:
    digits = "".join(c for c in role if c.isdigit())
    return int(digits) if digits else 0
