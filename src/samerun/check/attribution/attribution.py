"""From a difference to its cause: suspects first, then the experiment that confirms one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from samerun.base.records import Fix, FoundCause
from samerun.check.attribution import confirmation, native_entropy
from samerun.check.attribution.confirmation import confirmed, holding, is_reading, limited
from samerun.check.causes.table import cause as cause_of
from samerun.check.causes.table import suspects
from samerun.check.evidence.control_flow import branch_on_last_bits
from samerun.check.evidence.growth import steps_to_keep
from samerun.check.evidence.line_search import (
    PartingLine,
    first_use_of_id,
    parting_line,
    speaks_of_addresses,
    statement_at,
)
from samerun.check.evidence.own_variable import batch_size, compiled_draws
from samerun.check.evidence.situation import Situation, Suspect
from samerun.check.evidence.source import diff
from samerun.check.evidence.spread import spread
from samerun.check.evidence.values import Elements, compare_kept
from samerun.check.execution.runner import Run
from samerun.check.plan import Plan, Variation
from samerun.check.variations.address_layout import why_not
from samerun.record import pins
from samerun.record.config import TensorCapture
from samerun.record.trace import format as f

MOST_EXPERIMENTS = 5
FOLLOWED = 3
"""So often two runs are followed line by line in search of where they part."""
EVERYTHING = (
    pins.PYTHON, pins.PYTHON_GENERATOR, pins.NUMPY_GLOBAL, pins.NUMPY_GENERATOR, pins.TORCH, pins.TORCH_GENERATOR,
    pins.ENTROPY, pins.CLOCK,
)  # fmt: skip
ROUNDING = ("thread-count", "cpu-capability", "batch-size")
"""Kinds that change last bits only."""
SEVERAL = {"worker-count": ("worker-seed", "worker-count")}
"""Variations that point to one of several kinds."""


@dataclass(frozen=True)
class Found:
    """The cause of a difference, its fix, and how far the values are apart."""

    cause: FoundCause
    fix: Fix
    elements: Elements | None
    others: tuple[FoundCause, ...] = ()
    suspect: Suspect | None = None
    variation: str = ""
    """The variation that makes the difference, several joined by +; "" where the program differs by itself."""


class Runs(confirmation.Runs, Protocol):
    """What attribution needs of a search."""

    def keep_growth(self, steps: tuple[int, ...], a: Run, b: Run) -> None: ...
    @property
    def brief(self) -> bool: ...


def of_rerun(search: Runs, situation: Situation, held: set[str]) -> Found | None:
    """The cause when the same command gives two results; None where the surroundings may be the cause.

    `held`: names of the variations that were pinned in both runs.
    """
    plan = situation.a.plan
    listed = [s for s in suspects(situation) if s.kind not in ("unknown", "control-flow")]
    others = [s for s in listed if s.pins and s.rank < 5]
    tried = 0
    settled: set[tuple[str, ...]] = set()
    for suspect in distinct(listed):
        if not suspect.pins:
            if suspect.rank < 1.5:
                return found(suspect, values(search, situation, plan, plan), others)
            continue
        if tried >= MOST_EXPERIMENTS:
            break
        if is_reading(suspect):
            which = None
            if suspect.pins not in settled:
                readings = [s for s in listed if is_reading(s) and s.pins == suspect.pins]
                which = of_readings(search, situation, plan, readings)
            if which is not None:
                return found(replace(which, certain=True), values(search, situation, plan, plan), others)
            settled.add(suspect.pins)
            continue
        names = limited(suspect, listed)
        if not suspect.without and set(names) <= set(plan.watch.pins):  # behind a finding: held still already
            continue
        tried += 1
        if confirmed(search, situation, plan, suspect, f"pinned-{tried}", names):
            return found(replace(suspect, certain=True), values(search, situation, plan, plan), others)
    if not {"address_layout", "hash_seed", "listing_order", "memory"} <= held and not situation_is_kernel(situation):
        return None
    return by_lines(search, situation, values(search, situation, plan, plan))


def of_readings(search: Runs, situation: Situation, plan: Plan, readings: Sequence[Suspect]) -> Suspect | None:
    """The reading of one source that makes the difference; None where the source held still does not take it away.

    All are held first: programs read clocks and names of temporary files at many lines, and a moment is often compared
    with another one. Then each line by itself, the likeliest first. Where none suffices alone, it is the likeliest.
    """
    likeliest = readings[0]
    source = likeliest.pins[0]
    if not confirmed(search, situation, plan, likeliest, f"pinned-{source}", likeliest.pins):
        return None
    lines = list({(s.file, s.line): s for s in readings}.values())
    for number, suspect in enumerate(lines[:MOST_EXPERIMENTS] if len(lines) > 1 else [], 1):
        if confirmed(search, situation, plan, suspect, f"pinned-{source}-{number}", limited(suspect, readings)):
            return suspect
    return likeliest


def by_lines(search: Runs, situation: Situation, elements: Elements | None) -> Found:
    """Where no experiment helped: the first of the program's lines after which a variable differs."""
    plan = situation.a.plan
    listed = suspects(situation)
    line = None
    for _ in range(FOLLOWED):  # a difference that comes now and then may stay away when it is looked for
        followed = native_entropy.counted(plan.with_pins(*EVERYTHING))
        line, run = follow_lines(search, followed, followed, "followed")
        if line is not None or run.timed_out:
            break
    if line is not None and speaks_of_addresses(statement_at(line.file, line.line)):
        why = (line.evidence,)
        suspect = Suspect("object-id", line.file, line.line, why, 0, (pins.ADDRESSES,))
        sure = not why_not() and confirmed(search, situation, plan, suspect, "pinned-addresses", suspect.pins)
        return found(replace(suspect, certain=sure), elements)
    drawn = native_entropy.suspect(run, line)
    if drawn is not None and confirmed(search, situation, plan, drawn, "pinned-native", drawn.pins):
        return found(replace(drawn, certain=True), elements)
    best = next((s for s in listed if not s.pins), listed[0])
    if line is not None and best.rank >= 8:
        more = (*best.evidence, line.evidence)
        best = replace(best, file=line.file, line=line.line, evidence=more)
    return found(best, elements, [s for s in listed if s.pins and s.rank < 5])


def of_variation(search: Runs, situation: Situation, variation: Variation | None) -> Found:
    """The cause when only a variation gives another result: its kind is known, the line is looked for."""
    plan, varied = situation.a.plan, situation.b.plan
    kind = variation.cause if variation is not None else "unknown"
    elements = values(search, situation, plan, varied)
    own = of_own(search, situation, elements) if variation is not None and variation.group == "own" else None
    if own is not None:
        return own
    branch = branch_on_last_bits(situation) if kind in ROUNDING else None
    if branch is not None:
        return found(branch, elements, [s for s in suspects(situation) if s.kind == kind])
    kinds = SEVERAL.get(kind, (kind,))
    if any(s.kind == "environment-variable" for s in suspects(situation)):
        kinds = ("environment-variable",)
    mine = [s for s in suspects(situation) if s.kind in kinds]
    if variation is not None and variation.name == "listing_order" and len(mine) > 1:
        mine = alone(search, situation, varied, mine[:4], "listing") or mine
    if variation is not None and variation.name in ("clock", "memory") and len(mine) > 1:
        mine = alone(search, situation, varied, mine[:4], variation.name) or mine
    if mine:
        return found(replace(mine[0], certain=True), elements, mine[1:])
    line = None
    # Names of temporary files, and moments that are only logged, would differ first.
    others = (pins.ENTROPY,) if variation is not None and variation.name == "clock" else (pins.ENTROPY, pins.CLOCK)
    named = plan.with_pins(*others), varied.with_pins(*others)
    for _ in range(FOLLOWED if kind == "object-id" else 1):  # addresses are not always in another order
        line = line or follow_lines(search, *named, "followed")[0]
    event = situation.difference.event
    if line is not None:
        why = (line.evidence,)
        return found(Suspect(kind, line.file, line.line, why, 0, certain=True), elements)
    file, line_number = (event.file, event.line) if event is not None else ("", 0)
    why = ("the line is where the difference first shows",)
    if kind == "object-id" and (by_id := first_use_of_id(file)):
        line_number, why = by_id, ("the first line that uses id()",)
    return found(Suspect(kind, file, line_number, why, 0, certain=variation is not None), elements)


def of_own(search: Runs, situation: Situation, elements: Elements | None) -> Found | None:
    """What a variable of the user's own changes: the batch size, or how often is drawn. None: neither."""
    folder = situation.a.folder.parent
    batch = batch_size(situation, (folder / "kept-a.bin", folder / "kept-b.bin"))
    if batch is not None:
        return found(batch, elements)
    compiled = compiled_draws(situation)
    drawn = [s for s in suspects(situation) if s.kind == "extra-draw"]
    listed = ([compiled] if compiled is not None else []) + drawn
    for number, suspect in enumerate(listed, 1):
        a, b = (holding(run.plan, suspect, suspect.pins) for run in (situation.a, situation.b))
        label = (f"pin:{suspect.kind}",)
        runs = search.run(a, f"pinned-{number}a", label), search.run(b, f"pinned-{number}b", label)
        if not runs[1].failed and search.difference(*runs) is None:
            return found(replace(suspect, certain=True), elements)
    return found(listed[0], elements) if listed else None


def distinct(listed: Sequence[Suspect]) -> list[Suspect]:
    """Without those whose experiment would be another's again."""
    seen: set[tuple[object, ...]] = set()
    result = []
    for suspect in listed:
        at = (suspect.file, suspect.line) if pins.MEMORY in suspect.pins else ()  # its line is varied as well
        key = (suspect.pins, suspect.without, *limited(suspect, listed), at)
        if not suspect.pins or key not in seen:
            result.append(suspect)
        seen.add(key)
    return result


def alone(search: Runs, situation: Situation, varied: Plan, listed: Sequence[Suspect], what: str) -> list[Suspect]:
    """The suspects whose line makes a difference when only it is varied, the first one first."""
    hits = []
    for number, suspect in enumerate(listed, 1):
        run = search.run(varied.with_watch(varied_line=(what, suspect.file, suspect.line)), f"only-{number}", (what,))
        if search.difference(situation.a, run) is not None:
            hits.append(suspect)
    return hits


def values(search: Runs, situation: Situation, a: Plan, b: Plan) -> Elements | None:
    """How far the first differing operator's results are apart: both plans run again and keep them.

    The same runs keep parameters at some steps: what becomes of the difference is then known in numbers.
    """
    if search.brief:
        return None
    difference = situation.difference
    event = difference.a
    one = event is not None and difference.b is not None and difference.ordinal and difference.what != "operator"
    steps = steps_to_keep(spread(situation.a, situation.b))
    if not one and not steps:
        return None
    kept = []
    at_b = difference.ordinal_b or difference.ordinal
    for name, plan, ordinal in (("kept-a", a, difference.ordinal), ("kept-b", b, at_b)):
        plan = plan.with_watch(snapshot_steps=steps)
        if not one:
            plan = plan.with_watch(depth="steps", operator_window=None)
        if one and event is not None:
            path = situation.a.folder.parent / f"{name}.bin"
            path.unlink(missing_ok=True)  # of another search of this check
            plan = plan.with_watch(capture=TensorCapture(difference.role, event.thread, ordinal, str(path)))
        kept.append(search.run(plan, name, ("values",), alike(a, b)))
    search.keep_growth(steps, kept[0], kept[1])
    if not one or event is None:
        return None
    folder = situation.a.folder.parent
    return compare_kept(folder / "kept-a.bin", folder / "kept-b.bin", event.line)


def alike(a: Plan, b: Plan) -> bool:
    """Can two plans be run as forks of one process?"""
    return (a.environment, a.prefix, a.watch.fresh_memory, a.watch.start_method, a.copied, a.other_home) == (
        b.environment, b.prefix, b.watch.fresh_memory, b.watch.start_method, b.copied, b.other_home,
    )  # fmt: skip


def follow_lines(search: Runs, a: Plan, b: Plan, name: str) -> tuple[PartingLine | None, Run]:
    """Both plans again, followed line by line: where they part, and the second run."""
    one, other = (
        search.run(plan.with_watch(trace_lines=True, depth="steps"), f"{name}-{letter}", ("lines",), alike(a, b))
        for letter, plan in (("a", a), ("b", b))
    )
    return parting_line(one, other), other


def situation_is_kernel(situation: Situation) -> bool:
    """Same inputs, other outputs: the surroundings of the process have no part in it. Where there are no inputs, what
    was written to is another tensor, and the surroundings may be why."""
    event = situation.difference.a
    undefined = f.NO_INPUTS | f.UNINITIALISED | f.INEXACT  # not all inputs are compared
    if situation.difference.what != "outputs" or event is None or event.flags & undefined:
        return False
    return event.kind == f.OPERATOR


def found(suspect: Suspect, elements: Elements | None, others: Sequence[Suspect] = ()) -> Found:
    kind = cause_of(suspect.kind)
    rest = tuple(
        FoundCause(o.kind, o.file, o.line, o.evidence, False)
        for o in others
        if (o.kind, o.file, o.line) != (suspect.kind, suspect.file, suspect.line)
    )
    made = FoundCause(suspect.kind, suspect.file, suspect.line, suspect.evidence, suspect.certain)
    patch = diff(suspect.file, suspect.line, kind.patch) if suspect.file else None
    return Found(made, Fix(kind.fix, patch, f"docs/causes.md#{kind.kind}"), elements, rest, suspect)
