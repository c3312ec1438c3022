"""Every switch as it is: wanted, in force, who set it, and whether that will do. Changes nothing."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Literal

from samerun.base.start import environment_at_start
from samerun.control.holding import set_by_samerun
from samerun.control.switches.switch import Policy, Switch, Value, Variable
from samerun.control.switches.table import SWITCHES
from samerun.control.too_late import Problem, environment_wanted, problem_of

__all__ = ["Finding", "environment_wanted", "survey"]

Verdict = Literal["ok", "differs", "too late", "not applicable"]
SetBy = Literal["environment", "program", "samerun", "default", "unknown"]


@dataclass(frozen=True)
class Finding:
    """One switch. Plain values only.

    wanted: None: any value will do, it is only recorded. in_force: None: not set, or not there.
    set_by: "environment" (before the program started), "program", "samerun", "default" or "unknown".
    verdict: "ok", "differs" (can be mended now), "too late", or "not applicable" (what it belongs to is not
    here, or torch is not imported yet). why: of the verdict. way_out: what to do, or None.
    """

    name: str
    what: str
    when: str
    wanted: Value
    in_force: Value
    set_by: SetBy
    verdict: Verdict
    why: str
    way_out: str | None


def survey(
    *,
    level: str = "error",
    fill_uninitialized_memory: bool = True,
    precision: str = "ieee",
    threads: int | None = None,
    cudnn_benchmark: str = "off",
) -> list[Finding]:
    """Look at every switch, in the order of the table. The arguments are those of `deterministic()`.

    Nothing is set, imported or started. Torch's own switches are "not applicable" until the program has
    imported torch.
    """
    policy = Policy(level, fill_uninitialized_memory, precision, threads, cudnn_benchmark)
    return [_finding(switch, policy) for switch in SWITCHES]


def _finding(switch: Switch, policy: Policy) -> Finding:
    set_by = _set_by(switch)

    def found(wanted: Value, in_force: Value, verdict: Verdict, why: str, way_out: str | None = None) -> Finding:
        return Finding(switch.name, switch.what, switch.when, wanted, in_force, set_by, verdict, why, way_out)

    problems = [each for each in (problem_of(switch, one, policy) for one in switch.variables) if each]
    if not switch.available():
        if problems:
            return found(problems[0].wanted, problems[0].found, *_told(problems))
        why = f"{switch.module} is not imported." if switch.module else f"Nothing here uses it. {switch.why}"
        if switch.module and switch.module.partition(".")[0] == "torch" and _is_there(switch.module):
            why = "This build of torch lacks it, or it needs a device that is not here."
        return found(None, None, "not applicable", why)
    wanted, in_force = _wanted(switch, policy), switch.read()
    if problems:
        return found(wanted, in_force, *_told(problems))
    for one in switch.variables:
        now = os.environ.get(one.name)
        if not one.settable_inside and now != in_force:
            why = f"This process goes by {in_force}, but those that it starts will go by {now}."
            return found(wanted, in_force, "differs", why, f'os.environ["{one.name}"] = "{in_force}"')
    if wanted is None:
        return found(None, in_force, "ok", f"Only recorded. {switch.why}")
    if switch.write is not None and switch.wanted(policy) is not None and not switch.agrees(in_force, wanted):
        return found(wanted, in_force, "differs", switch.why, "samerun.deterministic() sets it.")
    missing = [one for one in switch.variables if switch.write is None and _is_missing(one, policy)]
    late = [one for one in missing if one.already_read()]
    if late:
        out = "; ".join(f"export {one.name}={one.wanted(policy)}" for one in late)
        return found(wanted, in_force, "too late", switch.why, f"Start with `samerun run`, or: {out}")
    if missing:
        return found(wanted, in_force, "differs", switch.why, "samerun.deterministic() sets it.")
    return found(wanted, in_force, "ok", switch.why)


def _told(problems: list[Problem]) -> tuple[Verdict, str, str]:
    outs = "; ".join(each.way_out for each in problems)
    why = "; ".join(each.text for each in problems) + "."
    if any(each.late for each in problems):
        return "too late", why, f"Start with `samerun run`, or: {outs}"
    return "differs", why, outs


def _wanted(switch: Switch, policy: Policy) -> Value:
    if switch.wanted(policy) is not None:
        return switch.wanted(policy)
    values = {one.name: one.wanted(policy) for one in switch.variables}
    set_ones = {name: value for name, value in values.items() if value is not None}
    return next(iter(set_ones.values())) if len(set_ones) == 1 else set_ones or None


def _is_missing(variable: Variable, policy: Policy) -> bool:
    """Whether a variable is to have a value and has none."""
    return variable.wanted(policy) is not None and variable.read() is None


def _is_there(module: str) -> bool:
    return module in sys.modules


def _is_default(value: Value, default: Value) -> bool:
    if isinstance(value, dict):
        return all(default.get(name, one) == one for name, one in value.items())
    return bool(value == default)


def _set_by(switch: Switch) -> SetBy:
    names = [one.name for one in switch.variables]
    if any(set_by_samerun(name) for name in (switch.name, *names)):
        return "samerun"
    start = environment_at_start()
    if switch.available() and switch.default is not None:
        if _is_default(switch.read(), switch.default):
            return "default"
        return "environment" if any(name in start for name in names) else "program"
    if switch.available() and switch.write is not None:
        return "environment" if any(name in start for name in names) else "unknown"
    if any(name in os.environ and os.environ[name] != start.get(name) for name in names):
        return "program"
    return "environment" if any(name in start for name in names) else "default"
