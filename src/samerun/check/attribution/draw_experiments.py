"""Of several lines that draw from one unseeded generator: the first one that the results depend on.

The first draw may give a run its name, and a later one shuffle the data. With the generator pinned, the draws of one
line at a time get other numbers, while the generator goes on as it would.
"""

from __future__ import annotations

from dataclasses import replace

from samerun.check.attribution.confirmation import ExperimentRunner, add_pins_and_settings_they_need
from samerun.check.attribution.variable_experiments import differs_no_later_than_situation
from samerun.check.evidence.default_factories import move_to_default_factory_if_any
from samerun.check.evidence.situation import Situation, Suspect
from samerun.check.evidence.trace_signs import list_user_files
from samerun.check.plan import RunPlan
from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.trace.run import Event

GENERATORS: dict[tuple[str, ...], str] = {(pins.PYTHON,): "python", (pins.NUMPY_GLOBAL,): "numpy"}
"""Pins of generators whose draws can be freed at one line, and the names that they have in traces."""
MADE_BY_FIELDS = (pins.NUMPY_GENERATOR, pins.PYTHON_GENERATOR, pins.CLOCK, pins.ENTROPY)
"""Pins of what the factory of a dataclass's field may make or read."""
MOST_LINES = 4
TRIALS = 2
"""A choice among a few names is the same by chance now and then."""


def rerun_and_move_to_decisive_draw(
    search: ExperimentRunner, situation: Situation, plan: RunPlan, suspect: Suspect
) -> Suspect:
    """The suspect, which was confirmed, at the line that draws what the results depend on.

    It stays where it is, and is certain no longer, if no line alone changes the results.
    """
    draws = list_first_unseeded_draw_per_line(situation, suspect)
    if suspect.pins and suspect.pins[0] in MADE_BY_FIELDS:
        return move_to_default_factory_if_any(suspect, list_user_files(situation.a.traces))
    if len(draws) < 2:
        return suspect
    pinned = add_pins_and_settings_they_need(plan, suspect, suspect.pins)
    first = search.run_and_record(pinned, "drawn-0", ("draws",))
    for number, draw in enumerate(draws[:MOST_LINES], 1):
        freed = pinned.with_added_pins(f"{pins.FREE}@{draw.file}:{draw.line}")
        for _ in range(TRIALS):
            run = search.run_and_record(freed, f"drawn-{number}", ("draws",))
            if differs_no_later_than_situation(search.compare_runs(first, run), situation):
                return move_suspect_to_draw(suspect, draw, draws[: number - 1])
    why = "other lines draw from this generator as well; which of them the results depend on is not known"
    return replace(suspect, evidence=(*suspect.evidence, why), certain=False)


def list_first_unseeded_draw_per_line(situation: Situation, suspect: Suspect) -> list[Event]:
    """The first draw at each line from a global generator, up to its first seed; none for other generators."""
    generator = GENERATORS.get(suspect.pins)
    found: dict[tuple[str, int], Event] = {}
    for event in situation.host_events_until_difference if generator is not None else ():
        if event.name == generator and event.kind == f.SEED:
            break
        if event.name == generator and event.kind == f.DRAW and event.line:
            found.setdefault((event.file, event.line), event)
    return list(found.values()) if (suspect.file, suspect.line) in found else []


def move_suspect_to_draw(suspect: Suspect, draw: Event, earlier_draws: list[Event]) -> Suspect:
    if not earlier_draws:
        return suspect
    library = "random" if draw.name == "python" else "numpy.random"
    lines = ", ".join(str(event.line) for event in earlier_draws)
    why = (
        f"{library}.{draw.text}() at line {draw.line} is the first draw that the results depend on",
        f"with other numbers drawn before, at line{'s' if len(earlier_draws) > 1 else ''} {lines}, they are the same",
        *suspect.evidence[1:],
    )
    return replace(suspect, file=draw.file, line=draw.line, evidence=why)
