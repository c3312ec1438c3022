"""Assemble a receipt from the traces of a run and the facts that its processes recorded.

Each process has a section in it; the ranks of a distributed run are compared.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from samerun.base.errors import SamerunError
from samerun.base.user_code import relative_to_working_folder
from samerun.record.receipt import step_table
from samerun.record.receipt.receipt_json import SCHEMA, blake2b_hexdigest_canonical_json
from samerun.record.receipt.redact import (
    keyed_digest,
    load_or_create_redaction_key_fingerprint,
    redact_command_arguments,
    redact_environment,
    redact_host_and_folder_if_named,
    redact_url_credentials_and_tokens,
)
from samerun.record.receipt.step_table import (
    StepTable,
    build_step_table,
    build_step_tables,
    find_first_differing_step,
)
from samerun.record.trace import format as f
from samerun.record.trace.reader import Trace
from samerun.record.trace.run import Event, select_events

MAX_ENTRIES = 1000
"""Limit on the entries of each list in a receipt."""
RECORDED_KINDS = (f.SEED, f.CREATE, f.FILE, f.LOAD, f.SAVE, f.ENVIRONMENT, f.FINAL, f.MARK, f.OUTPUT)


@dataclass(frozen=True)
class ProcessSection:
    """What one process did. `record`: plain values, as they go into the receipt.

    The step tables are separate because they can be large. `complete`: the trace has its end mark. `failure`: why
    recording stopped, or "".
    """

    role: str
    pid: int
    complete: bool
    failure: str
    record: dict[str, Any]
    values: StepTable
    evidence: StepTable

    @property
    def has_results(self) -> bool:
        return bool(self.values.count or any(self.record[key] for key in ("final", "marks", "saved", "outputs")))

    @property
    def is_program_or_rank(self) -> bool:
        """Whether it is the program itself, or a rank of it; not a worker or a child."""
        return self.role == "main" or (self.role.startswith("rank") and "/" not in self.role)


def build_process_section(trace: Trace, first_event: int = 0, end_event: int | None = None) -> ProcessSection:
    """The section of a process, from event `first_event` up to (not including) event `end_event`."""
    events = [event for event in select_events(trace, RECORDED_KINDS, end_event) if event.index >= first_event]
    before = len(select_events(trace, (f.STEP,), first_event)) if first_event else 0
    by_kind = {kind: [event for event in events if event.kind == kind] for kind in RECORDED_KINDS}
    record: dict[str, Any] = {
        "seeds": _limit_entries(_make_seed_entries_with_counts([*by_kind[f.SEED], *by_kind[f.CREATE]])),
        "files": _limit_entries(_make_file_entries_from_first_events(by_kind[f.FILE])),
        "loaded": _limit_entries(_make_name_and_digest_entry(e) for e in by_kind[f.LOAD]),
        "environment": {e.name: keyed_digest(e.outputs) for e in by_kind[f.ENVIRONMENT][:MAX_ENTRIES]},
        "saved": _limit_entries(_make_name_and_digest_entry(e) for e in by_kind[f.SAVE]),
        "outputs": _limit_entries(_make_file_entries_from_first_events(by_kind[f.OUTPUT][::-1])),
        "final": _limit_entries(
            {"model": e.name, "tensors": e.inputs, "digest": _hex_digest(e)} for e in by_kind[f.FINAL]
        ),
        "marks": _limit_entries(
            {"name": e.name, "step": e.inputs - before, "digest": _hex_digest(e)} for e in by_kind[f.MARK]
        ),
    }
    values, evidence = build_step_tables(trace, first_event, end_event)
    return ProcessSection(trace.role, trace.pid, trace.complete, trace.failure, record, values, evidence)


def _limit_entries(items: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list(items)[:MAX_ENTRIES]


def _make_name_and_digest_entry(event: Event) -> dict[str, Any]:
    return {"name": redact_url_credentials_and_tokens(event.text), "digest": _hex_digest(event)}


def _hex_digest(event: Event) -> str:
    return event.outputs.hex()


def _make_seed_entries_with_counts(events: list[Event]) -> Iterator[dict[str, Any]]:
    """One entry for each line and seed; torch's seeds as numbers, those of other generators by their digest."""
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for event in events:
        plain = event.kind == f.SEED and event.name.startswith("torch")
        number = _reinterpret_uint64_as_int64(event.inputs) if plain else None
        key = (event.kind, event.name, event.file, event.line, event.inputs, event.is_seeded_by_system)
        entry = seen.setdefault(key, {
            "generator": event.name,
            "made": event.kind == f.CREATE,
            "seed": number,
            "digest": None if plain or event.is_seeded_by_system else f"{event.inputs:016x}",
            "unseeded": event.is_seeded_by_system,
            "at": f"{redact_and_relativize_path(event.file)}:{event.line}" if event.file else None,
            "times": 0,
        })  # fmt: skip
        entry["times"] += 1
    return iter(seen.values())


def _reinterpret_uint64_as_int64(value: int) -> int:
    return struct.unpack("<q", struct.pack("<Q", value))[0] if value >> 63 else value


def _make_file_entries_from_first_events(events: list[Event]) -> Iterator[dict[str, Any]]:
    """One entry for each file, from its first event."""
    seen: dict[str, dict[str, Any]] = {}
    for event in events:
        path = redact_and_relativize_path(event.text)
        seen.setdefault(path, {"path": path, "bytes": event.inputs, "digest": _hex_digest(event)})
    return iter(sorted(seen.values(), key=lambda one: str(one["path"])))


def redact_and_relativize_path(path: str) -> str:
    """A path for people: relative to the working directory if it lies inside, without lone surrogates."""
    inside = relative_to_working_folder(path)
    shown = redact_url_credentials_and_tokens(path if inside.startswith(os.pardir) else inside)
    return shown.encode("utf-8", "backslashreplace").decode()


def compare_rank_parameters(sections: list[ProcessSection]) -> dict[str, Any] | None:
    """Compare the parameters of all ranks after every step; None for a program of one process.

    `drift`: None if all ranks agree after every step. Otherwise the first step (from 1) after which they do not, and
    the groups of ranks that agree there. `from_the_start`: they never agreed, so each rank holds a shard of the
    model, or they started from different models.
    """
    ranks = [one for one in sections if one.is_program_or_rank and one.role != "main"]
    if len(ranks) < 2:
        return None
    tables = {
        one.role: _select_params_column(one.values)
        for one in sorted(ranks, key=lambda one: _parse_rank_from_role(one.role))
    }
    reference = next(iter(tables.values()))
    found = [find_first_differing_step(reference, table) for table in tables.values()]
    steps = [at[0] for at in found if at is not None]
    record: dict[str, Any] = {"count": len(ranks), "steps": {role: table.count for role, table in tables.items()}}
    if not steps:
        return {**record, "drift": None}
    first = min(steps)
    groups: dict[bytes, list[str]] = {}
    for role, table in tables.items():
        if table.count > first:
            groups.setdefault(table.digests_of_row(first)["params"], []).append(role)
    return {**record, "drift": {"step": first + 1, "groups": list(groups.values()), "from_the_start": first == 0}}


def _select_params_column(table: StepTable) -> StepTable:
    if "params" not in table.columns:
        return build_step_table((), b"")
    at, size = table.columns.index("params") * 16, table.row_bytes
    rows = b"".join(bytes(table.rows[i * size + at : i * size + at + 16]) for i in range(table.count))
    return build_step_table(("params",), rows)


def _parse_rank_from_role(role: str) -> int:
    digits = "".join(c for c in role if c.isdigit())
    return int(digits) if digits else 0


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


class SectionsOfTraces(NamedTuple):
    """The sections of all traces in a folder, and the messages about those that cannot be read."""

    sections: list[ProcessSection]
    read_errors: list[str]


def build_sections_of_traces(folder: Path) -> SectionsOfTraces:
    """The sections of all traces in a folder, and the errors of those that cannot be read."""
    sections, errors = list[ProcessSection](), list[str]()
    for path in sorted(folder.glob("*.trace")):
        try:
            sections.append(build_process_section(Trace(path)))
        except SamerunError as error:
            errors.append(error.message.replace(str(path), path.name))
    return SectionsOfTraces(sections, errors)


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
    facts = {pid: _redact_environment_in_facts(one, redact_patterns) for pid, one in facts.items()}
    fallback_facts = _redact_environment_in_facts(fallback_facts, redact_patterns)
    recorded = [
        one for one in sections if one.is_program_or_rank or one.has_results or (one.complete and one.record["files"])
    ]
    recorded.sort(key=lambda one: one.role)
    main = _select_main_facts(recorded, facts, fallback_facts)
    why = [*read_errors, *(f"{one.role}: {one.failure}" for one in recorded if one.failure)]
    why += [
        f"{one.role}: its trace ends before its end" for one in recorded if one.is_program_or_rank and not one.complete
    ]
    if not any(one.is_program_or_rank for one in recorded) and ending["signal"] is not None:
        why.append("no process of the program left a trace")
    rows = sum(one.values.count for one in recorded)
    inline = rows <= step_table.MAX_INLINE_ROWS
    body: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": KIND,
        "samerun": version,
        "command": {**command, "words": redact_command_arguments(command["words"], redact_patterns)},
        "environment_key": load_or_create_redaction_key_fingerprint(),
        "held": held_settings,
        "ended": {**ending, "complete": not why, "why": why},
        "code": {**code, "sources": main.get("sources", {})},
        "read_at": main["read_at"],
        "packages": main["packages"],
        **{key: main[key] for key in PER_PROCESS},
        "others": _collect_differing_rank_facts(recorded, facts, main),
        "processes": {one.role: _build_process_record(one, inline) for one in recorded},
        "ranks": compare_rank_parameters(sections),
        "steps_in": "receipt" if inline else "file",
    }
    receipt = with_reproducible_digest(body)
    numbers = {one.role: one.pid for one in sections}
    receipt["circumstances"] = {**redact_host_and_folder_if_named(circumstances, redact_patterns), "processes": numbers}
    tables = [table for one in recorded for table in (one.evidence, one.values)]
    return NewReceipt(receipt, tables)


def _redact_environment_in_facts(facts: dict[str, Any], extra_name_patterns: tuple[str, ...]) -> dict[str, Any]:
    return {**facts, "variables": redact_environment(facts["variables"], extra_name_patterns)}


def with_reproducible_digest(receipt: dict[str, Any]) -> dict[str, Any]:
    """The receipt with its digest."""
    return {
        **receipt,
        "digest": blake2b_hexdigest_canonical_json({k: v for k, v in receipt.items() if k not in OUTSIDE_DIGEST}),
    }


def _select_main_facts(
    sections: list[ProcessSection], facts: dict[int, dict[str, Any]], fallback_facts: dict[str, Any]
) -> dict[str, Any]:
    """The facts of the process that made the steps: the program itself, or the first rank."""
    order = sorted(
        sections, key=lambda one: (not one.is_program_or_rank, not one.values.count, len(one.role), one.role)
    )
    return next((facts[one.pid] for one in order if one.pid in facts), fallback_facts)


def _collect_differing_rank_facts(
    sections: list[ProcessSection], facts: dict[int, dict[str, Any]], main: dict[str, Any]
) -> dict[str, Any]:
    """For each other rank the facts that differ from those of the first one."""
    found = {}
    for one in sections:
        mine = facts.get(one.pid)
        if mine is None or mine is main or not one.is_program_or_rank or not one.values.count:
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


def _build_process_record(section: ProcessSection, includes_step_rows: bool) -> dict[str, Any]:
    steps: dict[str, Any] = {
        part: {
            "columns": list(table.columns),
            "count": table.count,
            "root": table.root,
            "rows": step_table.encode_inline_rows(table) if includes_step_rows else None,
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
