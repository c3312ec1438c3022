"""Report every switch: the wanted value, the one in force, who set it, and whether it will do. Changes nothing."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Literal

from samerun.base.launch import environment_at_start
from samerun.control.determinism.hold import is_set_by_samerun
from samerun.control.determinism.preflight import VariableProblem, find_variable_problem, required_environment
from samerun.control.switches.switch import CudnnBenchmark, Level, Policy, Precision, Switch, Value, Variable
from samerun.control.switches.table import SWITCHES

__all__ = ["SwitchFinding", "required_environment", "survey"]

Verdict = Literal["ok", "differs", "too late", "not applicable"]
SetBy = Literal["environment", "program", "samerun", "default", "unknown"]


@dataclass(frozen=True)
class SwitchFinding:
    """What `survey` says about one switch. Plain values only.

    wanted: None: any value will do, it is only recorded. in_force: None: not set, or not there.
    set_by: "environment" (before the program started), "program", "samerun", "default" or "unknown".
    verdict: "ok", "differs" (can still be set), "too late", or "not applicable" (its library is not here, or
    torch is not imported yet). why: the reason for the verdict. way_out: what to do, or None.
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
    level: Level = "error",
    fill_uninitialized_memory: bool = True,
    precision: Precision = "ieee",
    threads: int | None = None,
    cudnn_benchmark: CudnnBenchmark = "off",
) -> list[SwitchFinding]:
    """Look at every switch, in the order of the table. The arguments are those of `deterministic()`.

    Nothing is set, imported or started. Torch's own switches are "not applicable" until the program has
    imported torch.
    """
    policy = Policy(level, fill_uninitialized_memory, precision, threads, cudnn_benchmark)
    return [_survey_switch(switch, policy) for switch in SWITCHES]


def _survey_switch(switch: Switch, policy: Policy) -> SwitchFinding:
    set_by = _find_who_set(switch)

    def finding(
        wanted: Value, in_force: Value, verdict: Verdict, why: str, way_out: str | None = None
    ) -> SwitchFinding:
        return SwitchFinding(switch.name, switch.what, switch.when, wanted, in_force, set_by, verdict, why, way_out)

    problems = [problem for problem in (find_variable_problem(switch, v, policy) for v in switch.variables) if problem]
    if not switch.available():
        if problems:
            return finding(problems[0].wanted, problems[0].found, *_judge_problems(problems))
        why = f"{switch.module} is not imported." if switch.module else f"Nothing here uses it. {switch.why}"
        if switch.module and switch.module.partition(".")[0] == "torch" and _is_imported(switch.module):
            why = "This build of torch lacks it, or it needs a device that is not here."
        return finding(None, None, "not applicable", why)
    wanted, in_force = _get_wanted_value(switch, policy), switch.read()
    if problems:
        return finding(wanted, in_force, *_judge_problems(problems))
    for variable in switch.variables:
        now = os.environ.get(variable.name)
        if not variable.settable_inside and now != in_force:
            why = f"This process goes by {in_force}, but those that it starts will go by {now}."
            return finding(wanted, in_force, "differs", why, f'os.environ["{variable.name}"] = "{in_force}"')
    if wanted is None:
        return finding(None, in_force, "ok", f"Only recorded. {switch.why}")
    if switch.write is not None and switch.wanted(policy) is not None and not switch.agrees(in_force, wanted):
        return finding(wanted, in_force, "differs", switch.why, "samerun.deterministic() sets it.")
    missing = [v for v in switch.variables if switch.write is None and _is_wanted_but_unset(v, policy)]
    late = [variable for variable in missing if variable.already_read()]
    if late:
        exports = "; ".join(f"export {variable.name}={variable.wanted(policy)}" for variable in late)
        return finding(wanted, in_force, "too late", switch.why, f"Start with `samerun run`, or: {exports}")
    if missing:
        return finding(wanted, in_force, "differs", switch.why, "samerun.deterministic() sets it.")
    return finding(wanted, in_force, "ok", switch.why)


def _judge_problems(problems: list[VariableProblem]) -> tuple[Verdict, str, str]:
    """Return the verdict on a switch whose variables are wrong, why, and the way out."""
    remedies = "; ".join(problem.shell_remedy for problem in problems)
    why = "; ".join(problem.message for problem in problems) + "."
    if any(problem.late for problem in problems):
        return "too late", why, f"Start with `samerun run`, or: {remedies}"
    return "differs", why, remedies


def _get_wanted_value(switch: Switch, policy: Policy) -> Value:
    """Return the value that the switch wants; of one that has only variables, theirs."""
    if switch.wanted(policy) is not None:
        return switch.wanted(policy)
    values = {variable.name: variable.wanted(policy) for variable in switch.variables}
    set_ones = {name: value for name, value in values.items() if value is not None}
    return next(iter(set_ones.values())) if len(set_ones) == 1 else set_ones or None


def _is_wanted_but_unset(variable: Variable, policy: Policy) -> bool:
    """Whether a variable is to have a value and has none."""
    return variable.wanted(policy) is not None and variable.read_effective() is None


def _is_imported(module_name: str) -> bool:
    return module_name in sys.modules


def _equals_default(value: Value, default: Value) -> bool:
    if isinstance(value, dict):
        return all(default.get(name, entry) == entry for name, entry in value.items())
    return bool(value == default)


def _find_who_set(switch: Switch) -> SetBy:
    names = [variable.name for variable in switch.variables]
    if any(is_set_by_samerun(name) for name in (switch.name, *names)):
        return "samerun"
    start = environment_at_start()
    if switch.available() and switch.default is not None:
        if _equals_default(switch.read(), switch.default):
            return "default"
        return "environment" if any(name in start for name in names) else "program"
    if switch.available() and switch.write is not None:
        return "environment" if any(name in start for name in names) else "unknown"
    if any(name in os.environ and os.environ[name] != start.get(name) for name in names):
        return "program"
    return "environment" if any(name in start for name in names) else "default"
