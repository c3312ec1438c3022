"""Optimizer settings that differ between two runs: which line made, scheduled or set them."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from samerun.check.evidence.line_search import parse_source_or_empty
from samerun.check.neutral.run_numbers import NumberRecord, OperatorSummary, parse_source_line
from samerun.check.neutral.value_correspondence import Culprit
from samerun.record.config import SCHEDULER_STEPPED


def explain_by_optimizer_settings(
    a: NumberRecord, b: NumberRecord, operators_b: list[OperatorSummary]
) -> Culprit | None:
    """Another learning rate, weight decay or momentum, and who stepped the scheduler more often, or made or set it."""
    one, other = a.head.get("settings", {}), b.head.get("settings", {})
    ignored = ("foreach", "fused", "differentiable", "capturable")
    names = [n for n in one if n in other and one[n] != other[n] and not n.startswith(ignored)]
    if not names:
        return None
    name = names[0]
    other_setting = other[name]
    text = (
        f"{name} of the optimizer is {float.fromhex(one[name]):.9g} on side A and {float.fromhex(other[name]):.9g} on B"
    )
    steps_a, steps_b = (r.head.get("lines", {}).get(SCHEDULER_STEPPED, {}) for r in (a, b))
    for line in sorted(set(steps_a) | set(steps_b)):
        if steps_a.get(line, 0) != steps_b.get(line, 0):
            text += (
                f": the scheduler was stepped {steps_a.get(line, 0)} times on side A and {steps_b.get(line, 0)} on B"
            )
            return Culprit("lr_scheduler.step", *parse_source_line(line), text)
    made_a, made_b = (r.head.get("schedulers", {}) for r in (a, b))
    for line, settings in made_b.items():
        for key, value in settings.items():
            on_a = made_a.get(line, {}).get(key)
            if on_a is not None and on_a != value:
                text += f": {settings['class']} is made with {key}={on_a} on side A and {value} on B"
                return Culprit(settings["class"], *parse_source_line(line), text)
    before_a, before_b = (r.head.get("made", {}).get("settings", {}).get(name) for r in (a, b))
    if before_b is not None and before_a is not None and before_a != before_b:
        return Culprit(b.head["optimizer"], *parse_source_line(b.head["made"]["line"]), f"{text}, as it was made")
    file, line_number = parse_source_line(b.head.get("line", ""))
    if before_b != other_setting:
        files = dict.fromkeys((file, *(o.location.file for o in operators_b)))
        set_at = list_assignments_to_string_key(files, name.partition(" of group ")[0].partition("[")[0])
        if len(set_at) == 1:
            return Culprit("optimizer.param_groups", *set_at[0], f"{text}: the program sets it itself")
    return Culprit("optimizer.step", file, line_number, text)


def list_assignments_to_string_key(files: Iterable[str], setting: str) -> list[tuple[str, int]]:
    """File and line of every statement in these files that writes `...["setting"]`."""
    found = []
    for file in files:
        for node in ast.walk(parse_source_or_empty(file)):
            if not isinstance(node, ast.Assign | ast.AugAssign):
                continue
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                key = target.slice if isinstance(target, ast.Subscript) else None
                if isinstance(key, ast.Constant) and key.value == setting:
                    found.append((file, node.lineno))
    return found
