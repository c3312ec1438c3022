"""Find the variations that make a difference: one run with all of them, then runs with halves of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from samerun.base.records import DIFFERENT, SAME, TROUBLE, VariationOutcome
from samerun.check.evidence.trace_signs import any_user_file_calls_id
from samerun.check.execution.runner import Run
from samerun.check.plan import Variation
from samerun.check.search.run_status import describe_failure, timed_out_without_difference
from samerun.record.comparison.compare import Difference

NOT_ALONE = "not varied alone: address_layout makes a difference already, and most others move objects too"


@dataclass(frozen=True)
class VariedRun:
    """A run with some variations applied, and its first difference from the control run."""

    variations: tuple[Variation, ...]
    run: Run
    difference: Difference | None


def prefer_address_layout_run(single_variation_runs: Sequence[VariedRun]) -> VariedRun:
    """Of several variations that each make a difference, the one that explains it best.

    Another hash seed or environment moves objects in memory too, and so makes a difference in a program that goes by
    addresses. The address layout changes nothing else, so if it makes a difference, addresses are the cause.
    """
    by_address = [single for single in single_variation_runs if single.variations[0].cause == "object-id"]
    return (by_address or list(single_variation_runs))[0]


class VariationRunner(Protocol):
    """The part of `Search` that bisection uses."""

    def run_varied(self, control: Run, pinned: Sequence[Variation], varied: Sequence[Variation]) -> VariedRun: ...
    def delete_traces_if_unsaved(self, run: Run) -> None: ...
    def record_outcome(self, variation: Variation, outcome: VariationOutcome, detail: str = "") -> None: ...


def retry_without_may_fail_variations(
    search: VariationRunner, control: Run, pinned: Sequence[Variation], varied_run: VariedRun
) -> tuple[VariedRun | None, list[Variation]]:
    """Repeat a failed run without the variations that may fail for reasons of their own.

    (A copy of the working directory may lack what the program looks for.) Returns the run and what is varied in it.
    """
    group = list(varied_run.variations)
    failing = [v for v in group if v.may_fail]
    if not varied_run.run.is_failed or varied_run.run.timed_out or not failing or len(group) == 1:
        return varied_run, group
    said = varied_run.run.read_output_tail("stderr").strip().splitlines()
    why = f"left out: {describe_failure(varied_run.run)}" + (f" ({said[-1].strip()})" if said else "")
    for variation in failing:
        search.record_outcome(variation, TROUBLE, why)
    rest = [v for v in group if v not in failing]
    return (search.run_varied(control, pinned, rest) if rest else None), rest


def bisect_and_record_outcomes(
    search: VariationRunner, control: Run, pinned: Sequence[Variation], varied_run: VariedRun
) -> list[VariedRun]:
    """The single variations that make a difference, by bisection; records the outcome of each variation.

    A program that goes by addresses differs under most variations, since most of them move objects. Varying the address
    layout alone shows that in one run, and the half that contains it need not be bisected.
    """
    single = (
        _run_address_layout_alone_and_record(search, control, pinned, varied_run)
        if any_user_file_calls_id(control.traces)
        else None
    )
    return single or _bisect_to_single_differing_variations(search, control, pinned, varied_run)


def rerun_and_describe_combination(
    search: VariationRunner, control: Run, pinned: Sequence[Variation], varied_run: VariedRun
) -> str:
    """What to say of variations none of which makes the difference alone: vary them together once more."""
    again = search.run_varied(control, pinned, varied_run.variations)
    if again.difference is not None:
        return "No single variation makes the difference: only together do they."
    return (
        "The difference came once, with everything varied, and not again with the same varied or with any of it alone:"
        " it seems to be chance, such as threads that race. `--vary rerun --repeat 20` may show it without variations."
    )


def _bisect_to_single_differing_variations(
    search: VariationRunner, control: Run, pinned: Sequence[Variation], varied_run: VariedRun
) -> list[VariedRun]:
    if varied_run.difference is None:
        search.delete_traces_if_unsaved(varied_run.run)
        for variation in varied_run.variations:
            search.record_outcome(variation, SAME)
        return []
    if len(varied_run.variations) == 1:
        (variation,) = varied_run.variations
        failed = timed_out_without_difference(varied_run.run, varied_run.difference) or (
            variation.may_fail and varied_run.run.is_failed
        )
        search.record_outcome(variation, TROUBLE if failed else DIFFERENT, describe_failure(varied_run.run))
        return [] if failed else [varied_run]
    middle = (len(varied_run.variations) + 1) // 2
    parts = (varied_run.variations[:middle], varied_run.variations[middle:])
    halves: list[VariedRun] = []
    # if addresses explain it, the other half is not run
    for part in sorted(parts, key=lambda part: not _select_address_variations(part)):
        half = search.run_varied(control, pinned, part)
        halves.append(half)
        single = _run_address_layout_alone_and_record(search, control, pinned, half) if not half.run.is_failed else []
        if single:
            for variation in varied_run.variations:
                if variation not in half.variations:
                    search.record_outcome(variation, "skipped", NOT_ALONE)
            return single
    halves.sort(key=lambda half: half.variations != parts[0])
    return [
        single for half in halves for single in _bisect_to_single_differing_variations(search, control, pinned, half)
    ]


def _run_address_layout_alone_and_record(
    search: VariationRunner, control: Run, pinned: Sequence[Variation], varied_run: VariedRun
) -> list[VariedRun]:
    """A run with only the address layout varied, if it is one of several and makes a difference; else nothing."""
    layouts = _select_address_variations(varied_run.variations)
    if not layouts or len(varied_run.variations) < 3 or varied_run.difference is None:
        return []
    alone = search.run_varied(control, pinned, layouts)
    if alone.difference is None or alone.run.is_failed:
        return []
    for variation in varied_run.variations:
        if variation in layouts:
            search.record_outcome(variation, DIFFERENT)
        else:
            search.record_outcome(variation, "skipped", NOT_ALONE)
    return [alone]


def _select_address_variations(variations: Sequence[Variation]) -> list[Variation]:
    return [v for v in variations if v.cause == "object-id"]
