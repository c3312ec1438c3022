"""From a difference to its cause: list the suspects, then confirm one of them by experiment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from samerun.base.records import Fix, FoundCause
from samerun.base.source_edits import make_source_patch
from samerun.check.attribution import native_entropy
from samerun.check.attribution.confirmation import (
    MOST_EXPERIMENTS,
    Experiment,
    add_pins_and_settings_they_need,
    confirm_by_experiment,
    find_suspect_lines_that_differ_when_varied_alone,
    is_mere_clock_or_entropy_reading,
    is_race_elsewhere_held_by_same_pin,
    limit_pins_to_line,
    rerun_and_check_later_runs_agree,
)
from samerun.check.attribution.draw_experiments import rerun_and_move_to_decisive_draw
from samerun.check.attribution.hidden_sources import ALL_SOURCES, find_hidden_source
from samerun.check.attribution.reading_experiments import (
    find_decisive_or_likeliest_reading,
    pin_lines_together_and_find_likeliest,
)
from samerun.check.attribution.task_experiments import (
    confirm_seed_with_tasks_in_turn,
    mark_untested_if_not_serial,
    rerun_and_find_task_order_suspect,
)
from samerun.check.attribution.value_measurement import (
    AttributionSearch,
    compare_kept_values_and_record_growth,
    get_kept_value_paths,
    make_plans_keeping_values,
    rerun_and_measure_difference,
)
from samerun.check.attribution.variable_experiments import (
    DecisiveVariable,
    VariableExperiments,
    can_pin_seed_at_line,
    rerun_and_find_decisive_env_read,
    rerun_and_find_decisive_seed,
    rerun_and_find_differing_variable,
    rerun_and_move_to_origin_of_seed,
)
from samerun.check.causes.table import cause_of_kind, list_suspects_likeliest_first
from samerun.check.evidence.default_factories import move_to_default_factory_if_any
from samerun.check.evidence.line_search import (
    find_first_differing_variable,
    first_line_using_id_or_zero,
    read_statement_source_or_empty,
    uses_id_or_set,
)
from samerun.check.evidence.situation import Situation, Suspect
from samerun.check.evidence.trace_signs import (
    find_compiled_draws_suspect,
    find_differing_row_count_suspect,
    find_last_bits_branch_suspect,
    list_user_files,
)
from samerun.check.evidence.value_differences import ElementDifference
from samerun.check.plan import RunPlan, Variation
from samerun.check.variations.memory import (
    stop_varying_malloc_memory,
    vary_malloc_memory_alone,
    why_aslr_cannot_be_disabled,
)
from samerun.record import pins

MOST_LINE_TRACES = 3
"""How often two runs are traced line by line to find where they part."""
ROUNDING_CAUSES = ("thread-count", "cpu-capability", "batch-size")
"""Kinds that change last bits only."""
KINDS_OF_VARIATION_CAUSE = {"worker-count": ("worker-seed", "worker-count")}
"""Variations that point to one of several kinds."""


VARIED_AT_LINE = {"listing_order": "listing", "clock": "clock", "memory": "memory"}
"""Variations that can act at one line alone or leave it out, and their names inside the recorded process."""
MOST_LINES_VARIED = 6
KINDS_SHOWING_ELSEWHERE = (
    "hash-order", "object-id", "listing-order", "environment-variable", "time", "thread-count", "cpu-capability",
)  # fmt: skip
"""Kinds whose hazard usually stands before the line where the difference first shows."""


@dataclass(frozen=True)
class AttributedCause:
    """The cause of a difference, its fix, and how far apart the values are."""

    cause: FoundCause
    fix: Fix
    elements: ElementDifference | None
    others: tuple[FoundCause, ...] = ()
    suspect: Suspect | None = None
    variation: str = ""
    """The variation that makes the difference, several joined by +; "" where the program differs by itself."""


def attribute_rerun_difference_by_experiments(
    search: AttributionSearch, situation: Situation, pinned_variation_names: set[str], untested: list[Suspect]
) -> AttributedCause | None:
    """The cause when the same command gives two results; None if the environment may be the cause.

    `pinned_variation_names`: names of the variations that were pinned in both runs. `untested` gets the suspects whose
    experiment did not hold what it was to hold.
    """
    # Suspects come by rank, so that experiments begin with the likeliest and the five that are affordable suffice. A
    # suspect without pins has no experiment; it is accepted only if its rank says that nothing else explains the
    # event. Mere readings of a clock are tested together, once per source (decisions 33 and 50).
    plan = situation.a.plan
    listed = [s for s in list_suspects_likeliest_first(situation) if s.kind not in ("unknown", "control-flow")]
    others = [s for s in listed if s.pins and s.rank < 5]
    tried = 0
    settled: set[tuple[str, ...]] = set()
    refuted: list[Suspect] = []
    for suspect in drop_suspects_with_repeated_experiment(listed):
        if not suspect.pins:
            if suspect.rank < 1.5:
                return make_attributed_cause(
                    suspect, rerun_and_measure_difference(search, situation, plan, plan), others
                )
            if suspect.kind == "data-changed" and rerun_and_check_later_runs_agree(search, situation):
                return make_attributed_cause(suspect, None, others)
            continue
        if tried >= MOST_EXPERIMENTS:
            break
        if is_mere_clock_or_entropy_reading(suspect):
            which = None
            if suspect.pins not in settled:
                readings = [s for s in listed if is_mere_clock_or_entropy_reading(s) and s.pins == suspect.pins]
                which = find_decisive_or_likeliest_reading(search, situation, plan, readings)
            if which is not None:
                which = move_to_default_factory_if_any(which, list_user_files(situation.a.traces))
                return make_attributed_cause(which, rerun_and_measure_difference(search, situation, plan, plan), others)
            settled.add(suspect.pins)
            continue
        names = limit_pins_to_line(suspect)
        # pinned already, because a finding before this one was
        if not suspect.without and set(names) <= set(plan.watch.pins):
            continue
        tried += 1
        experiment = Experiment(search, situation, plan, suspect, f"pinned-{tried}", names)
        if experiment.run_and_confirm():
            certain = not any(is_race_elsewhere_held_by_same_pin(suspect, other) for other in listed)
            decisive = rerun_and_move_to_decisive_draw(search, situation, plan, replace(suspect, certain=certain))
            elements = rerun_and_measure_difference(search, situation, plan, plan)
            return make_attributed_cause(decisive, elements, others)
        refuted.append(suspect)
        untested += mark_untested_if_not_serial(suspect, experiment.first)
    separable = dict.fromkeys(suspect.pins for suspect in refuted if set(suspect.pins) <= set(pins.SEPARABLE))
    together = (
        pin_lines_together_and_find_likeliest(search, situation, plan, [s for s in refuted if s.pins == pin])
        for pin in separable
    )
    found = next(filter(None, together), None) or confirm_seed_with_tasks_in_turn(search, situation, refuted)
    if found is not None:
        return make_attributed_cause(found, rerun_and_measure_difference(search, situation, plan, plan), others)
    pinned_environment = {"address_layout", "hash_seed", "listing_order", "memory"}
    if not pinned_environment <= pinned_variation_names and not situation.has_same_inputs_but_other_outputs:
        return None
    elements = rerun_and_measure_difference(search, situation, plan, plan)
    return attribute_by_line_trace_or_likeliest_suspect(search, situation, elements, untested)


def attribute_by_line_trace_or_likeliest_suspect(
    search: AttributionSearch,
    situation: Situation,
    element_difference: ElementDifference | None,
    untested: Sequence[Suspect],
) -> AttributedCause:
    """If no experiment helped: the first line of the program after which a variable differs.

    `untested`: suspects whose experiment did not hold what it was to hold.
    """
    plan = situation.a.plan
    listed = list_suspects_likeliest_first(situation)
    line = None
    for _ in range(MOST_LINE_TRACES):  # a rare difference may not show in these runs
        followed = native_entropy.with_native_draws_recorded_if_possible(plan.with_added_pins(*ALL_SOURCES))
        line, runs = rerun_and_find_differing_variable(search, situation, followed, followed, "followed")
        if line is not None or runs[1].timed_out:
            break
    if line is not None and uses_id_or_set(read_statement_source_or_empty(line.file, line.line)):
        why: tuple[str, ...] = (line.first_difference_sentence,)
        suspect = Suspect("object-id", line.file, line.line, why, 0, (pins.ADDRESSES,))
        certain = not why_aslr_cannot_be_disabled() and confirm_by_experiment(
            search, situation, plan, suspect, "pinned-addresses", suspect.pins
        )
        found = trace_lines_and_find_decisive_variable(search, situation, (plan, plan), True, True) if certain else None
        if found is not None:
            line, why, certain = found[0].variable, found[0].evidence, found[0].certain
        suspect = replace(suspect, file=line.file, line=line.line, evidence=why, certain=certain and found is not None)
        return make_attributed_cause(suspect, element_difference)
    # Without a difference there, one of the sources that are pinned in these runs makes it, not one past Python.
    if line is None and not runs[1].timed_out and search.compare_runs(*runs) is None:
        hidden = find_hidden_source(search, situation, listed)
        if hidden is not None and hidden.line:
            return make_attributed_cause(hidden, element_difference)
        if hidden is not None:
            return attribute_hidden_source_to_user_variable(search, situation, hidden, element_difference)
    drawn = native_entropy.find_last_native_draw_suspect(runs[1], line, situation.difference.role)
    if drawn is not None and confirm_by_experiment(search, situation, plan, drawn, "pinned-native", drawn.pins):
        return make_attributed_cause(replace(drawn, certain=True), element_difference)
    in_turn = rerun_and_find_task_order_suspect(search, situation, line, runs[1].traces)
    if in_turn is not None:
        return make_attributed_cause(in_turn, element_difference)
    best = next(iter(untested), None) or next((s for s in listed if not s.pins), listed[0])
    if line is not None and best.rank >= 8:
        more = (*best.evidence, line.first_difference_sentence)
        best = replace(best, file=line.file, line=line.line, evidence=more)
    return make_attributed_cause(best, element_difference, [s for s in listed if s.pins and s.rank < 5])


def attribute_hidden_source_to_user_variable(
    search: AttributionSearch, situation: Situation, hidden: Suspect, element_difference: ElementDifference | None
) -> AttributedCause:
    """The line of a source that no line was seen to read: where what it gave becomes a variable of the user's."""
    others = situation.a.plan.with_added_pins(*(pin for pin in ALL_SOURCES if pin not in hidden.pins))
    found = trace_lines_and_find_decisive_variable(search, situation, (others, others), True, True)
    if found is None:
        return make_attributed_cause(replace(hidden, certain=True), element_difference)
    line, why = found[0].variable, (*hidden.evidence, *found[0].evidence)
    suspect = replace(hidden, file=line.file, line=line.line, evidence=why, certain=found[0].certain)
    return make_attributed_cause(suspect, element_difference)


def attribute_variation_difference_to_line(
    search: AttributionSearch, situation: Situation, single_variation: Variation | None
) -> AttributedCause:
    """The cause when only a variation changes the result: the variation gives the kind, this finds the line."""
    # No experiment is needed to be certain: the control runs agree, the varied run differs, and the variation is the
    # only thing that differs between them. What remains open is the line, which is why suspects are varied one by one.
    plan, varied = situation.a.plan, situation.b.plan
    kind = single_variation.cause if single_variation is not None else "unknown"

    is_own = single_variation is not None and single_variation.group == "own"
    measured = rerun_and_measure_difference(search, situation, plan, varied) if is_own else None

    def attribute_to(suspect: Suspect, others: Sequence[Suspect] = ()) -> AttributedCause:
        elements = measured if is_own else rerun_and_measure_difference(search, situation, plan, varied)
        return make_attributed_cause(suspect, elements, others)

    if is_own:
        user_variable = attribute_to_batch_size_or_extra_draws(search, situation, measured)
        if user_variable is not None:
            return user_variable
    may_round = kind == "batch-size" or situation.has_same_inputs_but_other_outputs
    branch = find_last_bits_branch_suspect(situation) if kind in ROUNDING_CAUSES and may_round else None
    if branch is not None:
        return attribute_to(branch, [s for s in list_suspects_likeliest_first(situation) if s.kind == kind])
    unordered = [s for s in list_suspects_likeliest_first(situation) if s.kind == "nondeterministic-operator"]
    if unordered:  # whatever is varied: on a busy machine the control runs agree by chance
        return attribute_to(unordered[0])
    kinds = KINDS_OF_VARIATION_CAUSE.get(kind, (kind,))
    if any(s.kind == "environment-variable" for s in list_suspects_likeliest_first(situation)):
        kinds = ("environment-variable",)
    matching = [s for s in list_suspects_likeliest_first(situation) if s.kind in kinds]
    source = VARIED_AT_LINE.get(single_variation.name, "") if single_variation is not None else ""
    certain = True
    if source:
        of_lines = stop_varying_malloc_memory(varied) if source == "memory" else varied
        alone = find_suspect_lines_that_differ_when_varied_alone(
            search, situation, of_lines, matching[:MOST_LINES_VARIED], source
        )
        if not alone and source == "memory":
            of_libraries = vary_malloc_memory_alone(varied)
            run = search.run_and_record(of_libraries, "only-libraries", (source,))
            if search.compare_runs(situation.a, run) is not None:
                # No line made the memory that is read: an operator did, or else the line that first has other values.
                varied, alone = of_libraries, [s for s in matching if s.inside_operator]
                matching = alone
        matching, certain = alone or matching, bool(alone)
    elif kinds == ("environment-variable",):
        decisive_read = rerun_and_find_decisive_env_read(search, situation, matching)
        matching, certain = [decisive_read] if decisive_read is not None else matching, decisive_read is not None
    if matching and can_pin_seed_at_line(matching[0]):
        decisive_seed = rerun_and_find_decisive_seed(search, situation, matching)
        matching, certain = [], True
        if decisive_seed is not None:
            matching = [rerun_and_move_to_origin_of_seed(search, situation, decisive_seed)]
    if kind in KINDS_OF_VARIATION_CAUSE:  # the lines are those of workers, of which no experiment tests one alone
        certain = len({(suspect.file, suspect.line) for suspect in matching}) == 1
    if matching and (certain or kind in KINDS_OF_VARIATION_CAUSE):
        return attribute_to(replace(matching[0], certain=certain), matching[1:])
    # Names of temporary files, and moments that are only logged, would differ first.
    pinned = (
        (pins.ENTROPY,)
        if single_variation is not None and single_variation.name == "clock"
        else (pins.ENTROPY, pins.CLOCK)
    )
    named = plan.with_added_pins(*pinned), varied.with_added_pins(*pinned)
    followed = trace_lines_and_find_decisive_variable(search, situation, named, kind == "object-id", is_own)
    if followed is not None:
        decisive, elements = followed
        line, why = decisive.variable, decisive.evidence
        rivals = [Suspect(kind, each.file, each.line, (each.first_difference_sentence,), 0) for each in decisive.rivals]
        kind = matching[0].kind if matching else kind
        suspect = Suspect(kind, line.file, line.line, why, 0, certain=decisive.certain)
        return make_attributed_cause(suspect, measured if is_own else elements, rivals)
    if matching:
        return attribute_to(replace(matching[0], certain=False), matching[1:])
    event = situation.difference.event
    file, line_number = (event.file, event.line) if event is not None else ("", 0)
    why = ("the line is where the difference first shows",)
    if kind == "object-id" and (by_id := first_line_using_id_or_zero(file)):
        line_number, why = by_id, ("the first line that uses id()",)
    certain = single_variation is not None and kind not in KINDS_SHOWING_ELSEWHERE
    return attribute_to(Suspect(kind, file, line_number, why, 0, certain=certain))


def trace_lines_and_find_decisive_variable(
    search: AttributionSearch,
    situation: Situation,
    plans: tuple[RunPlan, RunPlan],
    some_pairs_may_agree: bool,
    already_measured: bool = False,
) -> tuple[DecisiveVariable, ElementDifference | None] | None:
    """The variable that makes the difference between runs of two plans, if one does; and how far apart the values are.

    `some_pairs_may_agree`: some runs of both agree, as addresses are not always in another order. `already_measured`:
    the values were compared before.
    """
    followed: tuple[RunPlan, ...] = tuple(plan.with_watch(trace_lines=True) for plan in plans)
    keeping = None if already_measured else make_plans_keeping_values(search, situation, followed)
    for _ in range(MOST_LINE_TRACES if some_pairs_may_agree else 1):
        a, b = (
            search.run_and_record(plan, f"followed-{letter}", ("lines",))
            for letter, plan in zip("ab", keeping or followed, strict=True)
        )
        role = situation.difference.role
        if search.compare_runs(a, b) is not None and find_first_differing_variable(a, b, role=role) is not None:
            found = VariableExperiments(
                search, situation, plans, some_pairs_may_agree
            ).rerun_and_find_decisive_variable((a, b))
            elements = (
                compare_kept_values_and_record_growth(search, situation, (a, b))
                if found is not None and keeping
                else None
            )
            return (found, elements) if found is not None else None
    return None


def attribute_to_batch_size_or_extra_draws(
    search: AttributionSearch, situation: Situation, element_difference: ElementDifference | None
) -> AttributedCause | None:
    """What a variable given with --vary-env changes: the batch size or the number of draws; None if neither."""
    batch = find_differing_row_count_suspect(situation, get_kept_value_paths(situation))
    if batch is not None:
        return make_attributed_cause(batch, element_difference)
    compiled = find_compiled_draws_suspect(situation)
    drawn = [s for s in list_suspects_likeliest_first(situation) if s.kind == "extra-draw"]
    listed = ([compiled] if compiled is not None else []) + drawn
    for number, suspect in enumerate(listed, 1):
        a, b = (add_pins_and_settings_they_need(run.plan, suspect, suspect.pins) for run in (situation.a, situation.b))
        label = (f"pin:{suspect.kind}",)
        runs = (
            search.run_and_record(a, f"pinned-{number}a", label),
            search.run_and_record(b, f"pinned-{number}b", label),
        )
        if not runs[1].is_failed and search.compare_runs(*runs) is None:
            return make_attributed_cause(replace(suspect, certain=True), element_difference)
    return make_attributed_cause(listed[0], element_difference) if listed else None


def drop_suspects_with_repeated_experiment(suspects: Sequence[Suspect]) -> list[Suspect]:
    """The suspects without those whose experiment would repeat another one's."""
    seen: set[tuple[object, ...]] = set()
    result = []
    for suspect in suspects:
        at = (suspect.file, suspect.line) if pins.MEMORY in suspect.pins else ()  # its line is varied as well
        key = (suspect.pins, suspect.without, *limit_pins_to_line(suspect), at)
        if not suspect.pins or key not in seen:
            result.append(suspect)
        seen.add(key)
    return result


def make_attributed_cause(
    suspect: Suspect, element_difference: ElementDifference | None, other_suspects: Sequence[Suspect] = ()
) -> AttributedCause:
    kind = cause_of_kind(suspect.kind)
    rest = tuple(
        FoundCause(o.kind, o.file, o.line, o.evidence, False)
        for o in other_suspects
        if (o.kind, o.file, o.line) != (suspect.kind, suspect.file, suspect.line)
    )
    certain = suspect.certain and suspect.kind != "unknown"
    found_cause = FoundCause(suspect.kind, suspect.file, suspect.line, suspect.evidence, certain)
    patch = make_source_patch(suspect.file, suspect.line, kind.make_edits) if suspect.file else None
    return AttributedCause(
        found_cause, Fix(kind.fix, patch, f"docs/causes.md#{kind.kind}"), element_difference, rest, suspect
    )
