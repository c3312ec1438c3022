"""The traces of one run, one for each process; the events in them, and their optimizer steps."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from samerun.record.trace import format as f
from samerun.record.trace.reader import Trace, TraceError

MAX_DESCRIBED = 5


@dataclass(frozen=True)
class Event:
    """One event of a trace, with the ids of its strings and source location resolved.

    `index`: its position in the trace. `text`: the string behind `aux`, for host events. What `inputs`, `outputs` and
    `aux` mean depends on the kind: see samerun.record.trace.format.
    """

    index: int
    kind: int
    name: str
    phase: str
    flags: int
    thread: int
    file: str
    line: int
    module: str
    aux: int
    text: str
    inputs: int
    outputs: bytes

    @property
    def direct(self) -> bool:
        return bool(self.flags & f.DIRECT)

    @property
    def is_seeded_by_system(self) -> bool:
        return bool(self.flags & f.UNSEEDED)


NUMBERED_BY_ARRIVAL = re.compile(r"(.*/)?(sub|main)(~\d+)?", re.DOTALL)
"""Roles of processes that were started as commands: the number says which of them was the first to compute."""

STARTED_BY_MAIN = "main/"


def _is_rank(trace: Trace) -> bool:
    """Whether the process told its rank among others."""
    return f.RANK_OF_PROCESS in trace.strings


def _find_told_rank(trace: Trace) -> int | None:
    """The rank that the process told; None if it told none."""
    facts = select_events(trace, (f.FACT,)) if _is_rank(trace) else ()
    told = next((event.text for event in facts if event.name == f.RANK_OF_PROCESS), "")
    return int(told) if told.isdecimal() else None


class RunTraces:
    """All traces in one folder, by the role of their process.

    A process that would be numbered by arrival is known by its rank if it told one, as a launcher starts its workers
    at once.

    The traces of killed processes are read as far as they go. `failures`: what could not be recorded, for people.
    Raises TraceError for a damaged trace.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.traces: dict[str, Trace] = {}
        self.failures: list[str] = []
        for path in sorted(folder.glob("*.trace")):
            if path.is_file() and path.stat().st_size < f.HEADER_BYTES:
                self.failures.append(f"{path.name} has no header: the disk may be full")
                continue
            trace = Trace(path)
            self.traces[trace.role] = trace
        self._name_processes_by_rank()
        self.failures += [f"{role}: {trace.failure}" for role, trace in self.traces.items() if trace.failure]

    def _name_processes_by_rank(self) -> None:
        """Give a process that is numbered by arrival, and its children, a role by the rank that it told."""
        traces = dict(self.traces)
        for numbered, trace in traces.items():
            match = NUMBERED_BY_ARRIVAL.fullmatch(numbered)
            alone = numbered == "main" and "main~1" not in traces
            if match is None or alone or not _is_rank(trace):
                continue
            rank = _find_told_rank(trace)
            is_started_by_launcher = match[1] == STARTED_BY_MAIN and "main" in traces and not _is_rank(traces["main"])
            prefix = "" if is_started_by_launcher else match[1] or ""
            named = numbered if rank is None else f"{prefix}rank{rank}"
            if named in self.traces:
                continue
            for role in [role for role in self.traces if role == numbered or role.startswith(f"{numbered}/")]:
                moved = self.traces.pop(role)
                moved.role = named + role[len(numbered) :]
                self.traces[moved.role] = moved
        self.traces = dict(sorted(self.traces.items(), key=lambda item: (item[0] != "main", item[0])))

    @property
    def main(self) -> Trace | None:
        """The trace of the program itself; of the first rank where a launcher started ranks and computes nothing."""
        main, first_rank = self.traces.get("main"), self.traces.get("rank0")
        if main is not None and first_rank is not None and count_events(main, f.OPERATOR):
            return main
        return first_rank or main or next(iter(self.traces.values()), None)

    def list_rank_roles(self) -> list[str]:
        """The processes that train together, by rank; none where one process trains.

        A launcher started them, or a program that makes no optimizer steps itself (`torch.multiprocessing.spawn`).
        """
        launched = [role for role in self.traces if re.fullmatch(r"rank\d{1,9}", role)]
        if launched:
            return sorted(launched, key=lambda role: int(role.removeprefix("rank")))
        told = [
            (rank, role)
            for role, trace in self.traces.items()
            if role.startswith(STARTED_BY_MAIN) and (rank := _find_told_rank(trace)) is not None
        ]
        if not told or "main" not in self.traces or count_events(self.traces["main"], f.STEP):
            return []
        return [role for _, role in sorted(told)]

    def event_count(self) -> int:
        return sum(trace.count for trace in self.traces.values())

    def max_step_count(self) -> int:
        """Number of optimizer steps of the process that made the most."""
        return max((count_events(trace, f.STEP) for trace in self.traces.values()), default=0)

    def operator_count(self) -> int:
        return sum(count_events(trace, f.OPERATOR) for trace in self.traces.values())


def count_events(trace: Trace, kind: int) -> int:
    """Number of events of one kind."""
    return sum(int((chunk["kind"] == kind).sum()) for chunk in trace.iter_event_chunks())


def resolve_raw_event(trace: Trace, event_index: int, raw_record: Any) -> Event:
    """Look up the strings and the source location of a raw record."""
    file, line, module = trace.location_or_empty(int(raw_record["location"]))
    kind, flags = int(raw_record["kind"]), int(raw_record["flags"])
    phase = flags & f.PHASE_MASK
    return Event(
        index=event_index,
        kind=kind,
        name=trace.string_or_empty(int(raw_record["name"])),
        phase=f.PHASES[phase] if phase < len(f.PHASES) else "host",
        flags=flags,
        thread=int(raw_record["thread"]),
        file=file,
        line=line,
        module=module,
        aux=int(raw_record["aux"]),
        text="" if kind == f.OPERATOR else trace.string_or_empty(int(raw_record["aux"])),
        inputs=int(raw_record["inputs"]),
        outputs=int(raw_record["out0"]).to_bytes(8, "little") + int(raw_record["out1"]).to_bytes(8, "little"),
    )


def select_events(
    trace: Trace, kinds: tuple[int, ...], end_event: int | None = None, first_event: int = 0
) -> list[Event]:
    """The events of some kinds in order, from index `first_event` up to (not including) index `end_event`."""
    selected: list[Event] = []
    at = 0
    for chunk in trace.iter_event_chunks():
        if end_event is not None and at >= end_event:
            break
        first = max(0, first_event - at)
        where = first + np.flatnonzero(np.isin(chunk["kind"][first:], kinds))
        for i in where:
            if end_event is not None and at + int(i) >= end_event:
                break
            selected.append(resolve_raw_event(trace, at + int(i), chunk[i]))
        at += len(chunk)
    return selected


def count_explicit_seeds(traces: RunTraces) -> Counter[tuple[str, str, int]]:
    """How often the program gave a generator a seed of its own: by process, generator and seed."""
    return Counter(
        (role, event.name, event.inputs)
        for role, trace in traces.traces.items()
        for event in select_events(trace, (f.SEED, f.CREATE))
        if event.line and not event.is_seeded_by_system
    )


def describe_skipped_operators(traces: RunTraces) -> list[str]:
    """Sentences about the operators that were not recorded: one for all on tensors without values, one for each
    operator whose tensors could not be read."""
    without_values = 0
    unread: Counter[tuple[str, str]] = Counter()
    for trace in traces.traces.values():
        for event in select_events(trace, (f.SKIPPED,)):
            if event.text == f.NO_VALUES:
                without_values += event.inputs
            else:
                unread[(event.name, event.text)] += event.inputs
    notes = []
    if without_values:
        notes.append(f"Not compared: {without_values} operators on tensors without values (fake or meta tensors).")
    for (name, reason), count in unread.most_common(MAX_DESCRIBED):
        notes.append(f"Not compared: {count} times {name}, whose tensors could not be read ({reason}).")
    if len(unread) > MAX_DESCRIBED:
        rest = len(unread) - MAX_DESCRIBED
        notes.append(f"Not compared: {rest} more operators whose tensors could not be read.")
    return notes


def describe_cut_off_processes(traces: RunTraces) -> list[str]:
    """One sentence about the processes beside the main one that were killed: their last events were not written."""
    first = traces.traces.get("main") or next(iter(traces.traces.values()), None)
    cut_off = [trace.role for trace in traces.traces.values()
               if not (trace.complete or trace.failure or trace is first)]  # fmt: skip
    if not cut_off:
        return []
    names = ", ".join(cut_off[:MAX_DESCRIBED])
    more = f" and {len(cut_off) - MAX_DESCRIBED} more" if len(cut_off) > MAX_DESCRIBED else ""
    return [f"Not compared: what {names}{more} computed last, before a signal or C code ended the process."]


__all__ = ["Event", "RunTraces", "TraceError", "count_events", "describe_cut_off_processes",
           "describe_skipped_operators", "resolve_raw_event", "select_events"]  # fmt: skip


@dataclass(frozen=True)
class Step:
    """The events from the end of the previous optimizer step to the end of this one.

    number: from 1. begin, end: indices of the first event and of the STEP event. leaves: digest of each state
    (parameters, gradients, ...) after the step, in the order of the trace. The events themselves are read on demand.
    """

    trace: Trace
    number: int
    begin: int
    end: int
    leaves: dict[str, bytes]

    def select_events(self, *kinds: int) -> list[Event]:
        return select_events(self.trace, kinds, self.end + 1, self.begin)

    def find_leaf_event(self, name: str) -> Event | None:
        return next((event for event in self.select_events(f.LEAF) if event.name == name), None)

    def names_of_differing_leaves(self, other: Step) -> list[str]:
        """Names of the leaves whose digests differ between the two steps."""
        names = dict.fromkeys((*self.leaves, *other.leaves))
        return [name for name in names if self.leaves.get(name) != other.leaves.get(name)]


def read_optimizer_steps(trace: Trace) -> list[Step]:
    """The optimizer steps of a process, in order."""
    steps: list[Step] = []
    leaves: dict[str, bytes] = {}
    begin = at = 0
    for chunk in trace.iter_event_chunks():
        rows = np.flatnonzero(np.isin(chunk["kind"], (f.LEAF, f.STEP)))
        records = chunk[rows]
        digests = np.stack([records["out0"], records["out1"]], axis=1).astype("<u8").tobytes()
        fields = zip(rows.tolist(), records["kind"].tolist(), records["name"].tolist(), strict=True)
        for i, (row, kind, name) in enumerate(fields):
            if kind == f.LEAF:
                leaves[trace.string_or_empty(name)] = digests[16 * i : 16 * i + 16]
            else:
                steps.append(Step(trace, len(steps) + 1, begin, at + row, leaves))
                leaves, begin = {}, at + row + 1
        at += len(chunk)
    return steps


def read_sorted_final_digests_by_model_class(trace: Trace) -> dict[str, list[bytes]]:
    """Model class -> sorted digests of the models of that class at the end of the program."""
    digests_by_class: dict[str, list[bytes]] = {}
    for event in select_events(trace, (f.FINAL,)):
        digests_by_class.setdefault(event.name, []).append(event.outputs)
    return {name: sorted(digests) for name, digests in digests_by_class.items()}
