"""Which line's reading of a clock, or of the system's entropy, results depend on: experiments at one line, or at two.

All readings are pinned first: a program reads clocks and names of temporary files at many lines. Then each line is
pinned alone, the likeliest first, and the end of a duration together with its begin, without which it means nothing
(decisions 33 and 58).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from samerun.check.attribution.confirmation import (
    MOST_EXPERIMENTS,
    Experiment,
    ExperimentRunner,
    limit_pins_to_line,
)
from samerun.check.evidence.durations import find_duration_starts, is_end_of_duration
from samerun.check.evidence.situation import Situation, Suspect
from samerun.check.plan import RunPlan
from samerun.record import pins


def find_decisive_or_likeliest_reading(
    search: ExperimentRunner, situation: Situation, plan: RunPlan, readings: Sequence[Suspect]
) -> Suspect | None:
    """The reading of one source that makes the difference; None if the difference stays with the source pinned.

    If no line suffices, nor all of them, the likeliest is returned, which is not certain then.
    """
    likeliest = readings[0]
    source = likeliest.pins[0]
    groups = join_ends_of_durations(list_likeliest_by_line(readings))
    lines = [line for group in groups for line in group]
    of_all = replace(likeliest, tick=likeliest.tick_everywhere)
    everywhere = Experiment(search, situation, plan, of_all, f"pinned-{source}", likeliest.pins)
    if len(groups) > 1 and not everywhere.rerun_pinned_and_check_it_disappears():
        return None
    for number, group in enumerate(groups, 1):
        if len(groups) > 1 and len(group) == 1 and is_end_of_duration(group[0].file, group[0].line):
            continue  # alone it decides nothing: what it is compared with is a reading, too
        experiment = make_experiment_at_lines(search, situation, plan, group, f"pinned-{source}-{number}")
        if experiment.run_and_confirm():
            return mark_certain_with_lines(group, "")
    if len(groups) == 1:
        return None
    together = pin_lines_together_and_find_likeliest(search, situation, plan, lines)
    if together is not None:
        return together
    return likeliest if everywhere.confirm_returns_unpinned_and_follows_pins() else None


def join_ends_of_durations(lines: Sequence[Suspect]) -> list[list[Suspect]]:
    """The likeliest lines, each alone, but the end of a duration with its begin, which is left out elsewhere."""
    of_clocks = [line for line in lines if line.pins == (pins.CLOCK,)]
    starts = {
        file: find_duration_starts(file, [line.line for line in of_clocks if line.file == file])
        for file in {line.file for line in of_clocks}
    }
    groups: list[list[Suspect]] = []
    for line in lines:
        if any(line in group[1:] for group in groups):
            continue
        if len(groups) == MOST_EXPERIMENTS:
            break
        own = starts.get(line.file, {}).get(line.line, [])
        groups.append([line, *(each for each in lines if each.file == line.file and each.line in own)])
    starting = {(each.file, each.line) for group in groups for each in group[1:]}
    return [group for group in groups if len(group) > 1 or (group[0].file, group[0].line) not in starting]


def make_experiment_at_lines(
    search: ExperimentRunner, situation: Situation, plan: RunPlan, lines: Sequence[Suspect], name: str
) -> Experiment:
    """One source held at some lines; the first of them is the suspect."""
    names = tuple(dict.fromkeys(pin for suspect in lines for pin in limit_pins_to_line(suspect)))
    readings_per_second = sum(1 / suspect.tick for suspect in lines if suspect.tick)
    suspect = replace(lines[0], tick=1 / readings_per_second if readings_per_second else 0.0)
    return Experiment(search, situation, plan, suspect, name, names)


def pin_lines_together_and_find_likeliest(
    search: ExperimentRunner, situation: Situation, plan: RunPlan, suspects: Sequence[Suspect]
) -> Suspect | None:
    """The likeliest of the lines without which the difference goes only together; None if it stays with all pinned.

    Both ends of a duration are such lines, and generators whose numbers meet in one operator. A line that can be left
    free is left out. `suspects`: lines that read one source, the likeliest first.
    """
    needed = list_likeliest_by_line(suspects)
    name = f"pinned-{suspects[0].pins[0].partition('@')[0]}-lines"
    sufficient = make_experiment_at_lines(search, situation, plan, needed, name)
    if len(needed) < 2 or not sufficient.rerun_pinned_and_check_it_disappears():
        return None
    for suspect in needed[::-1]:
        rest = [each for each in needed if each is not suspect]
        fewer = make_experiment_at_lines(search, situation, plan, rest, name) if len(rest) > 1 else None
        if fewer is not None and fewer.rerun_pinned_and_check_it_disappears():
            needed, sufficient = rest, fewer
    if not sufficient.confirm_returns_unpinned_and_follows_pins():
        return None
    return mark_certain_with_lines(
        needed, "" if any(is_end_of_duration(each.file, each.line) for each in needed) else "only "
    )


def mark_certain_with_lines(lines: Sequence[Suspect], only: str) -> Suspect:
    """The first of the lines, which were held together, as certain. only: "only " where each alone was refuted."""
    if len(lines) == 1:
        return replace(lines[0], certain=True)
    others = ", ".join(f"{os.path.basename(each.file)}:{each.line}" for each in lines[1:])
    why = f"the difference goes {only}if this line and {others} are held still together"
    return replace(lines[0], evidence=(*lines[0].evidence, why), certain=True)


def list_likeliest_by_line(suspects: Sequence[Suspect]) -> list[Suspect]:
    """The likeliest suspect at each line, of suspects of which the likeliest come first."""
    return list({(s.file, s.line): s for s in reversed(suspects)}.values())[::-1]
