"""Assemble a receipt from the traces of a run and the facts that its processes recorded."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samerun.base.errors import SamerunError
from samerun.record.receipt import step_table
from samerun.record.receipt.canonical_json import SCHEMA, digest_value
from samerun.record.receipt.process_section import ProcessSection, build_section, compare_ranks
from samerun.record.receipt.redact import key_fingerprint, redact_circumstances, redact_values, redact_words
from samerun.record.receipt.step_table import StepTable
from samerun.record.trace.reader import Trace

KIND = "samerun receipt"
OUTSIDE_DIGEST = ("digest", "circumstances", "signature")
"""What the digest of a receipt does not cover: itself, and what differs even between two equal runs."""
PER_PROCESS = ("knobs", "variables", "machine", "seed", "streams")


@dataclass(frozen=True)
class NewReceipt:
    """A receipt just assembled, and its step tables."""

    receipt: dict[str, Any]
    tables: list[StepTable]

    @property
    def steps_file_content(self) -> bytes | None:
        """The content of the .steps file; None if the receipt holds the rows itself."""
        return step_table.encode_steps_file(iter(self.tables)) if self.receipt["steps_in"] == "file" else None


def build_sections_of_folder(folder: Path) -> tuple[list[ProcessSection], list[str]]:
    """The sections of all traces in a folder, and the errors of those that cannot be read."""
    sections, errors = [], []
    for path in sorted(folder.glob("*.trace")):
        try:
            sections.append(build_section(Trace(path)))
        except SamerunError as error:
            errors.append(error.message.replace(str(path), path.name))
    return sections, errors


def read_facts_by_pid(folder: Path) -> dict[int, dict[str, Any]]:
    """Process id -> the facts that it recorded."""
    found = {}
    for path in folder.glob("*.facts.json"):
        try:
            found[int(path.name.split(".")[0])] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # the process was killed while it wrote
    return found


def assemble_receipt(
    *,
    version: str,
    command: dict[str, Any],
    held_settings: dict[str, Any] | None,
    ending: dict[str, Any],
    code: dict[str, Any],
    sections: list[ProcessSection],
    read_errors: list[str],
    facts: dict[int, dict[str, Any]],
    fallback_facts: dict[str, Any],
    circumstances: dict[str, Any],
    redact_patterns: tuple[str, ...] = (),
) -> NewReceipt:
    """Assemble a receipt with its digest.

    read_errors: errors that make the receipt incomplete. fallback_facts: those used if no process recorded any.
    redact_patterns: names whose values are left out, besides those that look secret (`redact.py`).
    """
    facts = {pid: _redact_facts(one, redact_patterns) for pid, one in facts.items()}
    fallback_facts = _redact_facts(fallback_facts, redact_patterns)
    recorded = [
        one for one in sections if one.is_principal or one.has_results or (one.complete and one.record["files"])
    ]
    recorded.sort(key=lambda one: one.role)
    main = _select_main_facts(recorded, facts, fallback_facts)
    why = [*read_errors, *(f"{one.role}: {one.failure}" for one in recorded if one.failure)]
    why += [f"{one.role}: its trace ends before its end" for one in recorded if one.is_principal and not one.complete]
    if not any(one.is_principal for one in recorded) and ending["signal"] is not None:
        why.append("no process of the program left a trace")
    rows = sum(one.values.count for one in recorded)
    inline = rows <= step_table.MAX_INLINE_ROWS
    body: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": KIND,
        "samerun": version,
        "command": {**command, "words": redact_words(command["words"], redact_patterns)},
        "environment_key": key_fingerprint(),
        "held": held_settings,
        "ended": {**ending, "complete": not why, "why": why},
        "code": {**code, "sources": main.get("sources", {})},
        "read_at": main["read_at"],
        "packages": main["packages"],
        **{key: main[key] for key in PER_PROCESS},
        "others": _collect_rank_differences(recorded, facts, main),
        "processes": {one.role: _build_process_record(one, inline) for one in recorded},
        "ranks": compare_ranks(sections),
        "steps_in": "receipt" if inline else "file",
    }
    receipt = add_digest(body)
    numbers = {one.role: one.pid for one in sections}
    receipt["circumstances"] = {**redact_circumstances(circumstances, redact_patterns), "processes": numbers}
    tables = [table for one in recorded for table in (one.evidence, one.values)]
    return NewReceipt(receipt, tables)


def _redact_facts(facts: dict[str, Any], patterns: tuple[str, ...]) -> dict[str, Any]:
    return {**facts, "variables": redact_values(facts["variables"], patterns)}


def add_digest(receipt: dict[str, Any]) -> dict[str, Any]:
    """The receipt with its digest."""
    return {**receipt, "digest": digest_value({k: v for k, v in receipt.items() if k not in OUTSIDE_DIGEST})}


def _select_main_facts(
    sections: list[ProcessSection], facts: dict[int, dict[str, Any]], fallback_facts: dict[str, Any]
) -> dict[str, Any]:
    """The facts of the process that made the steps: the program itself, or the first rank."""
    order = sorted(sections, key=lambda one: (not one.is_principal, not one.values.count, len(one.role), one.role))
    return next((facts[one.pid] for one in order if one.pid in facts), fallback_facts)


def _collect_rank_differences(
    sections: list[ProcessSection], facts: dict[int, dict[str, Any]], main: dict[str, Any]
) -> dict[str, Any]:
    """For each other rank the facts that differ from those of the first one."""
    found = {}
    for one in sections:
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


def _build_process_record(section: ProcessSection, inline: bool) -> dict[str, Any]:
    steps: dict[str, Any] = {
        part: {
            "columns": list(table.columns),
            "count": table.count,
            "root": table.root,
            "rows": step_table.encode_inline_rows(table) if inline else None,
        }
        for part, table in (("values", section.values), ("evidence", section.evidence))
    }
    return {**section.record, "steps": steps}


def describe_host() -> dict[str, Any]:
    """Host, working directory and process id: part of the circumstances of a receipt."""
    import platform

    try:
        folder = os.getcwd()
    except OSError:  # the working directory was deleted
        folder = os.environ.get("PWD", "")
    return {"host": platform.node(), "folder": folder, "pid": os.getpid()}
