"""Put a receipt together from the traces of a run and the facts that its processes noted."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samerun.base.errors import SamerunError
from samerun.record.receipt import side_file
from samerun.record.receipt.canonical import SCHEMA, digest_of
from samerun.record.receipt.drift import ranks_of
from samerun.record.receipt.process_section import Section, section_of
from samerun.record.receipt.redact import key_name, redact_circumstances, redact_values, redact_words
from samerun.record.receipt.step_table import Table
from samerun.record.trace.reader import Trace

KIND = "samerun receipt"
OUTSIDE_DIGEST = ("digest", "circumstances", "signature")
"""What the receipt's digest does not cover: itself, and what differs between two runs that are the same."""
PER_PROCESS = ("knobs", "variables", "machine", "seed", "streams")


@dataclass(frozen=True)
class Assembled:
    """A receipt, and its steps where they do not stand in it."""

    receipt: dict[str, Any]
    tables: list[Table]

    @property
    def side(self) -> bytes | None:
        return side_file.content(iter(self.tables)) if self.receipt["steps_in"] == "file" else None


def sections_of(folder: Path) -> tuple[list[Section], list[str]]:
    """The sections of all traces in a folder, and what is wrong with those that cannot be read."""
    found, wrong = [], []
    for path in sorted(folder.glob("*.trace")):
        try:
            found.append(section_of(Trace(path)))
        except SamerunError as error:
            wrong.append(error.message.replace(str(path), path.name))
    return found, wrong


def facts_in(folder: Path) -> dict[int, dict[str, Any]]:
    """Process id -> what it noted."""
    found = {}
    for path in folder.glob("*.facts.json"):
        try:
            found[int(path.name.split(".")[0])] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # a process that was killed while it wrote
    return found


def assemble(
    *,
    version: str,
    command: dict[str, Any],
    held: dict[str, Any] | None,
    ended: dict[str, Any],
    code: dict[str, Any],
    sections: list[Section],
    wrong: list[str],
    facts: dict[int, dict[str, Any]],
    outside: dict[str, Any],
    circumstances: dict[str, Any],
    redact: tuple[str, ...] = (),
) -> Assembled:
    """All parts in their places. `outside`: the facts to go by where no process noted any.

    `redact`: patterns of names whose values are left out, beside those that look secret (`redact.py`).
    """
    facts = {pid: _redacted(one, redact) for pid, one in facts.items()}
    outside = _redacted(outside, redact)
    told = [one for one in sections if one.is_principal or one.has_results or (one.whole and one.told["files"])]
    told.sort(key=lambda one: one.role)
    main = _main(told, facts, outside)
    why = [*wrong, *(f"{one.role}: {one.failure}" for one in told if one.failure)]
    why += [f"{one.role}: its trace ends before its end" for one in told if one.is_principal and not one.whole]
    if not any(one.is_principal for one in told) and ended["signal"] is not None:
        why.append("no process of the program left a trace")
    rows = sum(one.values.count for one in told)
    inline = rows <= side_file.INLINE_ROWS
    body: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": KIND,
        "samerun": version,
        "command": {**command, "words": redact_words(command["words"], redact)},
        "environment_key": key_name(),
        "held": held,
        "ended": {**ended, "complete": not why, "why": why},
        "code": {**code, "sources": main.get("sources", {})},
        "read_at": main["read_at"],
        "packages": main["packages"],
        **{key: main[key] for key in PER_PROCESS},
        "others": _others(told, facts, main),
        "processes": {one.role: _process(one, inline) for one in told},
        "ranks": ranks_of(sections),
        "steps_in": "receipt" if inline else "file",
    }
    receipt = sealed(body)
    numbers = {one.role: one.pid for one in sections}
    receipt["circumstances"] = {**redact_circumstances(circumstances, redact), "processes": numbers}
    tables = [table for one in told for table in (one.evidence, one.values)]
    return Assembled(receipt, tables)


def _redacted(facts: dict[str, Any], patterns: tuple[str, ...]) -> dict[str, Any]:
    return {**facts, "variables": redact_values(facts["variables"], patterns)}


def sealed(receipt: dict[str, Any]) -> dict[str, Any]:
    """The receipt with its digest."""
    return {**receipt, "digest": digest_of({k: v for k, v in receipt.items() if k not in OUTSIDE_DIGEST})}


def _main(told: list[Section], facts: dict[int, dict[str, Any]], outside: dict[str, Any]) -> dict[str, Any]:
    """The facts of the process that made steps: the program itself, or the first rank."""
    order = sorted(told, key=lambda one: (not one.is_principal, not one.values.count, len(one.role), one.role))
    return next((facts[one.pid] for one in order if one.pid in facts), outside)


def _others(told: list[Section], facts: dict[int, dict[str, Any]], main: dict[str, Any]) -> dict[str, Any]:
    """Of the other ranks, what is not as in the first one."""
    found = {}
    for one in told:
        mine = facts.get(one.pid)
        if mine is None or mine is main or not one.is_principal or not one.values.count:
            continue
        differing: dict[str, Any] = {}
        for key in PER_PROCESS:
            if mine[key] == main[key]:
                continue
            if isinstance(mine[key], dict):
                differing[key] = {k: v for k, v in mine[key].items() if main[key].get(k) != v}
            else:
                differing[key] = mine[key]
        if differing:
            found[one.role] = differing
    return found


def _process(one: Section, inline: bool) -> dict[str, Any]:
    steps: dict[str, Any] = {
        part: {
            "columns": list(table.columns),
            "count": table.count,
            "root": table.root,
            "rows": side_file.inline_rows(table) if inline else None,
        }
        for part, table in (("values", one.values), ("evidence", one.evidence))
    }
    return {**one.told, "steps": steps}


def here() -> dict[str, Any]:
    """Where this process runs: part of the circumstances."""
    import platform

    try:
        folder = os.getcwd()
    except OSError:  # deleted, by the program perhaps
        folder = os.environ.get("PWD", "")
    return {"host": platform.node(), "folder": folder, "pid": os.getpid()}
