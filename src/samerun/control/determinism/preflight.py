"""Which environment variables make a deterministic run impossible, checked before anything is set."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from samerun.base.errors import SamerunError, SwitchError, TooLateError
from samerun.control.switches.switch import Policy, Switch, Variable
from samerun.control.switches.table import SWITCHES

_log = logging.getLogger("samerun")
_hash_seed_warned = False
_MOMENT = {
    "before interpreter": "the interpreter",
    "before torch": "torch",
    "before CUDA": "CUDA",
    "before library": "its library",
    "any time": "torch",
}


@dataclass(frozen=True)
class VariableProblem:
    """A variable with a wrong value: `late` if it was read already, so that setting it now would not help."""

    switch: Switch
    variable: Variable
    found: str | None
    wanted: str | None
    late: bool

    @property
    def message(self) -> str:
        name = self.variable.name
        if not self.late:
            return f"{name}={self.found} in the environment will not do: valid is {self.variable.valid_values}"
        found = "was not set" if self.found is None else f"was {self.found!r}"
        text = f"{name} {found} when {_MOMENT[self.switch.when]} started, and has to be {self.variable.valid_values}"
        now = os.environ.get(name)
        if now is not None and now != self.found:
            text += f" ({name}={now}, set later, changes nothing)"
        return text

    @property
    def shell_remedy(self) -> str:
        """The command of a shell that solves it."""
        return f"unset {self.variable.name}" if self.wanted is None else f"export {self.variable.name}={self.wanted}"


def find_variable_problem(switch: Switch, variable: Variable, policy: Policy) -> VariableProblem | None:
    """What is wrong with one variable; None if nothing is, or if it can still be set."""
    wanted, found, already_read = variable.wanted(policy), variable.read_effective(), variable.already_read()
    # An unset variable is wrong only once it was read: before that, `deterministic()` sets it itself.
    wrong = not variable.is_valid(found, policy) if found is not None else already_read and wanted is not None
    if not wrong or not variable.required:
        return None
    return VariableProblem(switch, variable, found, wanted, late=already_read)


def find_environment_problems(policy: Policy) -> Iterator[VariableProblem]:
    """Yield the problems of all variables of all switches."""
    for switch in SWITCHES:
        for variable in switch.variables:
            found = find_variable_problem(switch, variable, policy)
            if found is not None:
                yield found


def check_environment(policy: Policy) -> None:
    """Raise TooLateError or SwitchError for wrong variables; with level "warn", log them and go on."""
    found = list(find_environment_problems(policy))
    if policy.unset_hash_seed == "warn" and policy.level == "error":
        others = [problem for problem in found if not _is_unset_hash_seed(problem)]
        if found and not others:
            _warn_hash_seed_once()
        found = found if others else []
    if not found:
        return
    if policy.level == "warn":
        for problem in found:
            _log.warning("deterministic(): %s. Way out: %s", problem.message, problem.shell_remedy)
        return
    raise _make_environment_error(found)


def _is_unset_hash_seed(problem: VariableProblem) -> bool:
    return problem.switch.name == "hash_seed" and problem.found is None


def _warn_hash_seed_once() -> None:
    """Once in a process: everything else is deterministic."""
    global _hash_seed_warned
    if not _hash_seed_warned:
        _hash_seed_warned = True
        _log.warning(
            "deterministic(): PYTHONHASHSEED was not set when Python started, so sets of strings have another order in "
            "every process. All else is held still. Way out: samerun run, or export PYTHONHASHSEED=0 first."
        )


def _make_environment_error(problems: list[VariableProblem]) -> SamerunError:
    message = f"deterministic(): {'; '.join(problem.message for problem in problems)}."
    exports = "; ".join(problem.shell_remedy for problem in problems)
    if not any(problem.late for problem in problems):
        return SwitchError(message, f"Before the program starts: {exports}")
    return TooLateError(
        message,
        f"Start the program with `samerun run`, or first: {exports}\n"
        '  To go on without it: deterministic(..., level="warn").',
    )


def required_environment(threads: int | None = None, *, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that have to be set before the interpreter, torch and CUDA start. Imports none of them.

    `threads`: as in `deterministic()`. `environment`: where the user's own values stand (default:
    `os.environ`); a valid one is kept. Raises SwitchError for one that will not do.
    """
    policy = Policy(threads=threads)
    here = os.environ if environment is None else environment
    wanted: dict[str, str] = {}
    for switch in SWITCHES:
        for variable in switch.variables:
            value, own = variable.wanted(policy), here.get(variable.name)
            if own is not None and not variable.is_valid(own, policy):
                raise _make_environment_error([VariableProblem(switch, variable, own, value, late=False)])
            if value is not None:
                wanted[variable.name] = value if own is None else own
    return wanted
