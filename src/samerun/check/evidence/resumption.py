"""Compare a resumed run with the same steps of an uninterrupted run."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from samerun.record.comparison.alignment import RunLabel, classify_difference_by_event_kind_then_operands
from samerun.record.comparison.compare import Difference
from samerun.record.comparison.streams import SOFT_LEAVES
from samerun.record.trace import format as f
from samerun.record.trace.reader import Trace
from samerun.record.trace.run import (
    Event,
    RunTraces,
    Step,
    read_optimizer_steps,
    read_sorted_final_digests_by_model_class,
    select_events,
)

RNG_LEAVES = ("rng", "rng.numpy", "rng.python")
"""They count only if the uninterrupted run draws after the interruption: else their states do not matter."""
GLOBAL = ("torch", "numpy", "python")
"""Names of the global generators in draws; all others are the program's own."""


@dataclass(frozen=True)
class ResumeDifference:
    """Where a resumed run differs from the uninterrupted one.

    shift: how many steps of the uninterrupted run come before the first one of the resumed run. step, resumed_step: the
    first step that differs, in each of the two; None if every step is the same and only the end differs. first_steps:
    the first step after the interruption in both; is_first_step: whether that is the one that differs.
    lost_generators: leaves of random generators in another state after that first step. lost_own_draw: a draw in it
    from a generator of the program's own in another state.
    """

    difference: Difference
    shift: int
    step: Step | None = None
    resumed_step: Step | None = None
    first_steps: tuple[Step, Step] | None = None
    is_first_step: bool = False
    lost_generators: tuple[str, ...] = ()
    lost_own_draw: Event | None = None

    def list_differing_leaves(self) -> list[str]:
        """The leaves that differ there, values before evidence."""
        if self.step is None or self.resumed_step is None:
            return []
        return sorted(self.step.names_of_differing_leaves(self.resumed_step), key=lambda name: name in SOFT_LEAVES)

    def list_equal_leaves(self) -> list[str]:
        return (
            [] if self.step is None else [name for name in self.step.leaves if name not in self.list_differing_leaves()]
        )


def list_process_roles_with_steps(traces: RunTraces) -> list[str]:
    """The processes that make optimizer steps, the main one first."""
    roles = [role for role, trace in traces.traces.items() if read_optimizer_steps(trace)]
    return sorted(roles, key=lambda role: (role != "main", role))


def find_resume_difference(
    uninterrupted: RunTraces, stopped: RunTraces, resumed: RunTraces, runs_ended_early: bool = False
) -> ResumeDifference | None:
    """Where the resumed run differs from the uninterrupted one, or None.

    The main process comes first; of ranks, the one that differs after the fewest steps, and of those the one that has
    lost a generator, or whose loss differs: gradients carry a difference to all ranks.

    Steps are matched from the end, where both runs make the same ones. If they differ, they are matched from the
    checkpoint instead, if the traces tell when it was saved: a run that lost its place may make more steps, or fewer.
    runs_ended_early: the runs did not go to their end, so that steps can only be matched from the checkpoint (decision
    25).
    """
    found: list[ResumeDifference] = []
    for role in list_process_roles_with_steps(uninterrupted):
        difference = None
        if role in resumed.traces:
            difference = _find_resumed_difference_of_process(uninterrupted, stopped, resumed, role, runs_ended_early)
        if difference is not None and role == "main":
            return difference
        if difference is not None:
            found.append(difference)
    return min(found, key=_how_late_and_indirect, default=None)


def _how_late_and_indirect(found: ResumeDifference) -> tuple[float, bool, bool]:
    has_lost = bool(found.lost_generators) or found.lost_own_draw is not None
    step = math.inf if found.step is None else found.step.number
    return step, not has_lost, "loss" not in found.list_differing_leaves()


def _find_resumed_difference_of_process(
    uninterrupted: RunTraces, stopped: RunTraces, resumed: RunTraces, role: str, runs_ended_early: bool
) -> ResumeDifference | None:
    one, other = read_optimizer_steps(uninterrupted.traces[role]), read_optimizer_steps(resumed.traces[role])
    made = len(read_optimizer_steps(stopped.traces[role])) if role in stopped.traces else len(one)
    if runs_ended_early:
        saved_steps = count_steps_before_checkpoint_or_all(stopped, resumed, role)
        return _find_step_difference(one, other, saved_steps, runs_ended_early)
    shift = len(one) - len(other)
    found = _find_step_difference(one, other, shift if 0 <= shift <= made else made)
    if found is not None and role in stopped.traces:
        saved = count_steps_before_save_or_none(stopped.traces[role], resumed.traces[role])
        if saved is not None and saved != shift:
            found = _find_step_difference(one, other, saved) or found
    return found or _find_final_model_state_difference(uninterrupted.traces[role], resumed.traces[role], shift)


def count_steps_before_checkpoint_or_all(stopped: RunTraces, resumed: RunTraces, role: str) -> int:
    """The number of steps before the loaded checkpoint; if unknown, all that the interrupted run made."""
    if role not in stopped.traces:
        return 0
    saved = count_steps_before_save_or_none(stopped.traces[role], resumed.traces[role])
    return len(read_optimizer_steps(stopped.traces[role])) if saved is None else saved


def count_steps_before_save_or_none(stopped: Trace, resumed: Trace) -> int | None:
    """The number of steps after which the loaded checkpoint was saved; None if unknown."""
    saves = {}
    steps = 0
    for event in select_events(stopped, (f.SAVE, f.STEP)):
        steps += event.kind == f.STEP
        if event.kind == f.SAVE:
            saves[event.outputs] = steps
    loaded = None
    for event in select_events(resumed, (f.LOAD, f.STEP)):
        if event.kind == f.STEP:
            break
        loaded = saves.get(event.outputs, loaded)
    return loaded


def _find_step_difference(
    uninterrupted_steps: list[Step], resumed_steps: list[Step], steps_before_resume: int, runs_ended_early: bool = False
) -> ResumeDifference | None:
    behind = uninterrupted_steps[steps_before_resume:]
    for step, resumed_step in zip(behind, resumed_steps, strict=False):
        if not set(step.names_of_differing_leaves(resumed_step)) - SOFT_LEAVES:
            continue
        head = behind[0].names_of_differing_leaves(resumed_steps[0])
        lost = tuple(name for name in head if name in RNG_LEAVES and _leaf_varies_over_steps(name, behind))
        difference = _find_first_operator_difference(step, resumed_step) or _make_leaf_difference(step, resumed_step)
        own = _find_lost_private_generator_draw(behind[0], resumed_steps[0])
        return ResumeDifference(
            difference,
            steps_before_resume,
            step,
            resumed_step,
            (behind[0], resumed_steps[0]),
            step is behind[0],
            lost,
            own,
        )
    if runs_ended_early or len(behind) == len(resumed_steps):
        return None
    ends = [steps[-1].select_events(f.STEP)[-1] if steps else None for steps in (uninterrupted_steps, resumed_steps)]
    more: RunLabel = "a" if len(behind) > len(resumed_steps) else "b"
    role = uninterrupted_steps[0].trace.role
    return ResumeDifference(
        Difference("operator", role, "main", ends[0], ends[1], len(uninterrupted_steps), 0, more), steps_before_resume
    )


def _find_final_model_state_difference(uninterrupted: Trace, resumed: Trace, shift: int) -> ResumeDifference | None:
    """A difference in the final contents of a model that both runs have."""
    one, other = (
        read_sorted_final_digests_by_model_class(uninterrupted),
        read_sorted_final_digests_by_model_class(resumed),
    )
    for name, digests in one.items():
        if len(digests) == len(other.get(name, ())) and digests != other[name]:
            event = next(e for e in select_events(uninterrupted, (f.FINAL,)) if e.name == name)
            return ResumeDifference(
                Difference(
                    "final", uninterrupted.role, "main", event, None, len(read_optimizer_steps(uninterrupted)), 0
                ),
                shift,
            )
    return None


def _find_first_operator_difference(step: Step, resumed_step: Step) -> Difference | None:
    """The first operator, or draw of torch's, that differs in a step.

    A resumed process sets up before its first step, so the steps are laid end to end: as far back as they do the
    same, they are compared. None where operators were not recorded.
    """
    one, other = _select_main_thread_torch_events(step), _select_main_thread_torch_events(resumed_step)
    count = 0
    for a, b in zip(reversed(one), reversed(other), strict=False):
        if (a.kind, a.name, a.file, a.line) != (b.kind, b.name, b.file, b.line):
            break
        count += 1
    for a, b in zip(one[len(one) - count :], other[len(other) - count :], strict=True):
        scalars = a.aux != b.aux and a.kind == f.OPERATOR  # of a draw it is the number of a string in its own trace
        if scalars or (a.inputs, a.outputs) != (b.inputs, b.outputs):
            what = classify_difference_by_event_kind_then_operands(a, b)
            return Difference(what, step.trace.role, "main", a, b, step.number, 0)
    return None


def _select_main_thread_torch_events(step: Step) -> list[Event]:
    """Operators and draws from torch's generators in the main thread."""
    return [
        event for event in step.select_events(f.OPERATOR, f.DRAW)
        if event.thread == 0 and (event.kind == f.OPERATOR or event.name.startswith("torch"))
    ]  # fmt: skip


def _make_leaf_difference(step: Step, resumed_step: Step) -> Difference:
    name = next(name for name in step.names_of_differing_leaves(resumed_step) if name not in SOFT_LEAVES)
    return Difference(
        "leaf", step.trace.role, "main", step.find_leaf_event(name), resumed_step.find_leaf_event(name), step.number, 0
    )


def _find_lost_private_generator_draw(step: Step, resumed_step: Step) -> Event | None:
    """The first draw from a generator of the program's own that stands elsewhere in the other run.

    The draws at one line are laid end to end: a resumed process may draw there while it sets up.
    """
    draws = [defaultdict(list), defaultdict(list)]  # type: list[defaultdict[tuple[object, ...], list[Event]]]
    for found, events in zip(draws, (step.select_events(f.DRAW), resumed_step.select_events(f.DRAW)), strict=True):
        for event in events:
            if event.name not in GLOBAL:
                found[(event.name, event.text, event.file, event.line)].append(event)
    lost = []
    for key, mine in draws[0].items():
        pairs = list(zip(reversed(mine), reversed(draws[1].get(key, [])), strict=False))
        lost += [a for a, b in pairs if a.outputs != b.outputs]
    return min(lost, key=lambda event: event.index, default=None)


def _leaf_varies_over_steps(name: str, steps: list[Step]) -> bool:
    return len({step.leaves[name] for step in steps if name in step.leaves}) > 1
