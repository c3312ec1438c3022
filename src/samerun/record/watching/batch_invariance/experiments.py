"""The experiments: one sample in batches of other sizes, at other positions, beside other rows, with more padding.

Imports torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from samerun.base.errors import SamerunError
from samerun.record.watching.batch_invariance.attribution import BatchPair, find_operators_behind_difference
from samerun.record.watching.batch_invariance.batches import (
    Arguments,
    BatchInputs,
    Composition,
    Padding,
    Row,
    compose_cycled,
)
from samerun.record.watching.batch_invariance.model_runs import (
    ModelRuns,
    ResultRowDimensions,
    SampleRows,
    measure_difference_or_none_if_equal,
)
from samerun.record.watching.batch_invariance.operators import OperatorCall, OperatorRecorder
from samerun.record.watching.batch_invariance.report import (
    DIFFERENT,
    NOT_TRIED,
    SAME,
    BatchDependence,
    BatchExperiment,
    BatchInvarianceReport,
)
from samerun.record.watching.batch_invariance.sample_parts import BatchWindow, LengthWindow

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512)
"""Up to both sides of every power of two, where kernels change their tiles."""
NEIGHBOURS = 8
"""Rows of the batches in which positions and the contents of other rows are varied."""
MOST_SAMPLES = 3
PADDINGS = (1, 7, 64)
MOST_SHOWN = 6
MOST_PAIRS = 4
"""So many differences of one experiment are taken apart."""


class BatchExaminer:
    """One examination. `seconds`: after so many, no larger batch is begun; 0 for no limit."""

    def __init__(self, runs: ModelRuns, inputs: BatchInputs, sizes: Sequence[int], seconds: float = 0.0) -> None:
        self.runs, self.inputs, self.sizes = runs, inputs, sizes
        self.experiments: list[BatchExperiment] = []
        self.notes: list[str] = []
        self._deadline = time.monotonic() + seconds if seconds else float("inf")
        self._found: dict[tuple[Any, ...], BatchDependence] = {}

    def prepare(self) -> None:
        """Find out where results have rows. Raises SamerunError if the model cannot be examined."""
        alone = self.smallest = self._find_smallest_accepted_batch()
        larger = compose_cycled(alone.size + 1, 0, self.inputs.row_count)
        self.result_rows = ResultRowDimensions(self._run(alone), self._run(larger), (alone.size, larger.size))
        self.reference = self._rows(alone)
        self._require_repeatable_result("called twice with the same batch")

    def examine(self) -> BatchInvarianceReport:
        self.prepare()
        without = sum(dim is None for dim in self.result_rows.dims)
        if without:
            self.notes.append(f"{without} results have no row for each row of the inputs, and were not compared.")
        self._vary_size()
        self._vary_position()
        self._vary_contents()
        self._vary_padding()
        self._require_repeatable_result("called again after other batches, with the batch of before")
        return BatchInvarianceReport(tuple(self.experiments), tuple(self._found.values()), tuple(self.notes))

    def _find_smallest_accepted_batch(self) -> Composition:
        """The smallest of the sizes that the model takes. (A batch norm in training takes no single row.)"""
        smallest = compose_cycled(self.sizes[0], 0, self.inputs.row_count)
        if len(self.sizes) > 1:
            try:
                self._run(smallest)
            except SamerunError:
                raise
            except Exception as error:  # whatever the model says of such a batch
                self.notes.append(f"A batch of {self.sizes[0]} was not tried: {type(error).__name__}: {error}")
                self.sizes = self.sizes[1:]
                return compose_cycled(self.sizes[0], 0, self.inputs.row_count)
        return smallest

    # --- one run
    def _run(self, composition: Composition) -> list[torch.Tensor]:
        return self.runs.run(self.inputs.make(composition))

    def _rows(self, composition: Composition) -> SampleRows:
        return self.result_rows.take(self._run(composition), composition)

    def _require_repeatable_result(self, how: str) -> None:
        if measure_difference_or_none_if_equal(self.reference, self._rows(self.smallest)) is not None:
            raise SamerunError(
                f"batch_invariant(): {how}, the model gives another result; so nothing can be said of the batch.",
                "Find out why first: samerun check, or samerun.deterministic(). A model that keeps something from call"
                " to call needs a function around it that resets it.",
            )

    # --- the experiments
    def _vary_size(self) -> None:
        if len(self.sizes) < 2:
            self._add_experiment("size", NOT_TRIED, "only one size was asked for")
            return
        kinds: list[SampleRows] = []
        numbers: list[int] = []
        tried: list[int] = []
        spent = 0.0
        for size in self.sizes:
            begin = time.monotonic()
            if tried and begin + spent * size / tried[-1] > self._deadline:
                self.notes.append(f"Batches of {size} rows and more were not tried: they take too long.")
                break
            try:
                rows = self._rows(compose_cycled(size, 0, self.inputs.row_count))
            except Exception as error:  # whatever the model says of so many rows
                self.notes.append(f"A batch of {size} was not tried: {type(error).__name__}: {error}")
                continue
            spent = time.monotonic() - begin
            tried.append(size)
            same = [at for at, kind in enumerate(kinds) if measure_difference_or_none_if_equal(kind, rows) is None]
            if not same:
                kinds.append(rows)
            numbers.append(same[0] if same else len(kinds) - 1)
        stretches: list[list[int]] = []
        changes: dict[tuple[int, int], tuple[int, int]] = {}
        for at, (size, number) in enumerate(zip(tried, numbers, strict=True)):
            if at and number == numbers[at - 1]:
                stretches[-1].append(size)
                continue
            stretches.append([size])
            if at:
                changes.setdefault((numbers[at - 1], number), (tried[at - 1], size))
        shown = [f"{each[0]}-{each[-1]}" if len(each) > 1 else str(each[0]) for each in stretches]
        if len(kinds) == 1:
            self._add_experiment("size", SAME, f"{tried[0]} to {tried[-1]} rows ({len(tried)} sizes)")
            return
        more = f" | ... ({len(kinds)} kinds)" if len(shown) > MOST_SHOWN else ""
        self._add_experiment("size", DIFFERENT, f"the bits change between {' | '.join(shown[:MOST_SHOWN])}{more} rows")
        for one, other in list(changes.values())[:MOST_PAIRS]:
            a, b = (compose_cycled(size, 0, self.inputs.row_count) for size in (one, other))
            self._attribute_batches("size", f"{one} and {other} rows", a, b)

    def _samples(self) -> range:
        count = self.inputs.row_count
        return range(0, count, max(1, (count + MOST_SAMPLES - 1) // MOST_SAMPLES))

    def _size_of_batch_with_neighbours(self) -> int:
        return min(NEIGHBOURS, max(self.sizes))

    def _vary_position(self) -> None:
        size = self._size_of_batch_with_neighbours()
        pairs = [
            (compose_cycled(size, sample, self.inputs.row_count), position, sample)
            for sample in self._samples()
            for position in sorted({size // 2, size - 1} - {0})
        ]
        self._compare_and_attribute_pairs(
            "position",
            f"of {size} rows",
            (
                (f"row 0 and row {position} of {size}", first,
                 Composition((*first.rows[-position:], *first.rows[:-position]), position))
                for first, position, _ in pairs
            ),
        )  # fmt: skip

    def _vary_contents(self) -> None:
        size = self._size_of_batch_with_neighbours()
        if size < 2:
            self._add_experiment("contents", NOT_TRIED, "there is no batch with other rows")
            return

        def pairs() -> Iterator[tuple[str, Composition, Composition]]:
            for sample in self._samples():
                for position in (0, size - 1):
                    first = compose_cycled(size, sample, self.inputs.row_count, position)
                    yield f"{size} rows, and other values in the others", first, _replace_others(first, True)
                    yield f"{size} rows, and {size} times the same", first, _replace_others(first, False)

        self._compare_and_attribute_pairs("contents", f"of the {size - 1} other rows", pairs())

    def _compare_and_attribute_pairs(
        self, name: Any, detail: str, pairs: Iterator[tuple[str, Composition, Composition]] | Any
    ) -> None:
        """Compare batches of the same size, and take apart the first that differ."""
        differing = []
        count = 0
        for text, a, b in pairs:
            count += 1
            if measure_difference_or_none_if_equal(self._rows(a), self._rows(b)) is not None:
                differing.append((text, a, b))
        if not count:
            self._add_experiment(name, NOT_TRIED, "there is no batch with other rows")
            return
        if not differing:
            self._add_experiment(name, SAME, f"{detail} ({count} pairs of batches)")
            return
        self._add_experiment(name, DIFFERENT, f"{detail}: {len(differing)} of {count} pairs of batches")
        for text, a, b in differing[:MOST_PAIRS]:
            self._attribute_batches(name, text, a, b)

    def _vary_padding(self) -> None:
        if self.inputs.mask_name is None:
            self._add_experiment("padding", NOT_TRIED, "no mask among the keywords of the inputs")
            return
        alone, from_end = self.smallest, self.inputs.pads_left()
        differing: list[tuple[int, Composition]] = []
        for length in PADDINGS:
            for fill in ("zeros", "large"):
                padded = replace(alone, padding=Padding(length, fill))
                if measure_difference_or_none_if_equal(self.reference, self._rows(padded), from_end) is not None:
                    differing.append((length, padded))
        where = "left" if from_end else "right"
        if not differing:
            self._add_experiment("padding", SAME, f"{', '.join(map(str, PADDINGS))} places on the {where}")
            return
        lengths = ", ".join(map(str, dict.fromkeys(length for length, _ in differing)))
        self._add_experiment(
            "padding", DIFFERENT, f"{lengths} places on the {where}, which {self.inputs.mask_name} masks"
        )
        length, padded = differing[-1]
        pair = BatchPair(
            "padding", f"0 and {length} padded places", LengthWindow(from_end), self.inputs.make(alone),
            self.inputs.make(padded), self.inputs.make(padded),
        )  # fmt: skip
        self._attribute_and_merge_dependences(pair, alone, alone, from_end)

    # --- what makes the difference
    def _attribute_batches(self, experiment: str, text: str, a: Composition, b: Composition) -> None:
        probe = b if b.size != a.size else Composition((*a.rows, Row(0)), a.position)
        window = BatchWindow(a, b, probe.size)
        arguments: list[Arguments] = [self.inputs.make(each) for each in (a, b, probe)]
        self._attribute_and_merge_dependences(BatchPair(experiment, text, window, *arguments), a, b, None)

    def _attribute_and_merge_dependences(
        self, pair: BatchPair, a: Composition, b: Composition, from_end: bool | None
    ) -> None:
        def measure(results_a: list[torch.Tensor], results_b: list[torch.Tensor]) -> float | None:
            rows = self.result_rows.take(results_a, a), self.result_rows.take(results_b, b)
            return measure_difference_or_none_if_equal(*rows, from_end)

        found = find_operators_behind_difference(self.runs, pair, measure)
        if not found.is_explained:
            self.notes.append(
                f"{pair.text}: holding what was found does not make the results the same; there is more, in operators"
                " that samerun does not see or where the two go different ways."
            )
        for one in found.dependences:
            key = (one.operator, one.file, one.line, one.module)
            known = self._found.get(key)
            if known is None:
                self._found[key] = one
            elif one.shows_under[0] not in known.shows_under:
                self._found[key] = replace(known, shows_under=(*known.shows_under, *one.shows_under))

    def _add_experiment(self, name: Any, outcome: Any, detail: str) -> None:
        self.experiments.append(BatchExperiment(name, outcome, detail))


def _replace_others(composition: Composition, alter_else_repeat_sample: bool) -> Composition:
    """Other values in every row but the sample's, or the sample itself in every row."""
    own = composition.rows[composition.position]
    rows = tuple(
        own if at == composition.position or not alter_else_repeat_sample else replace(row, is_altered=True)
        for at, row in enumerate(composition.rows)
    )
    return replace(composition, rows=rows)


def examine_batch_invariance(
    function: Callable[..., Any], arguments: Arguments, sizes: Sequence[int] = SIZES, *, is_copied: bool = True,
    seconds: float = 0.0,
) -> BatchInvarianceReport:  # fmt: skip
    """What `samerun.batch_invariant` returns and raises."""
    inputs = BatchInputs(arguments)
    with ModelRuns(function, is_copied) as runs:
        return BatchExaminer(runs, inputs, sizes, seconds).examine()


def list_operators_if_examinable(function: Callable[..., Any], arguments: Arguments) -> list[OperatorCall] | None:
    """The operators of one call of a model, each line once; None if it cannot be examined with these arguments."""
    try:
        inputs = BatchInputs(arguments)
        with ModelRuns(function, False) as runs:
            examiner = BatchExaminer(runs, inputs, (inputs.row_count, inputs.row_count + 1))
            examiner.prepare()
            recorder = OperatorRecorder(runs.names)
            runs.run(inputs.make(examiner.smallest), recorder)
    except Exception:  # of a model that takes no other batch, or keeps something from call to call
        return None
    return list({call.key: call for call in recorder.calls if call.computes}.values())
