"""What cannot be held still any more, or not with what the user has chosen: found before anything is set."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from samerun.base.errors import SamerunError, SwitchError, TooLateError
from samerun.control.switches.switch import Policy, Switch, Variable
from samerun.control.switches.table import SWITCHES

_log = logging.getLogger("samerun")
_mentioned = False
_MOMENT = {
    "before interpreter": "the interpreter",
    "before torch": "torch",
    "before CUDA": "CUDA",
    "before library": "its library",
    "any time": "torch",
}


@dataclass(frozen=True)
class Problem:
    """A variable that is wrong: `late` if it was read already, so that setting it now would not help."""

    switch: Switch
    variable: Variable
    found: str | None
    wanted: str | None
    late: bool

    @property
    def text(self) -> str:
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
    def way_out(self) -> str:
        """A line for the shell."""
        return f"unset {self.variable.name}" if self.wanted is None else f"export {self.variable.name}={self.wanted}"


def problem_of(switch: Switch, variable: Variable, policy: Policy) -> Problem | None:
    """What is wrong with one variable; None if nothing is, or if it can still be set."""
    wanted, found, started = variable.wanted(policy), variable.read(), variable.already_read()
    wrong = not variable.is_valid(found, policy) if found is not None else started and wanted is not None
    if not wrong or not variable.required:
        return None
    return Problem(switch, variable, found, wanted, late=started)


def problems(policy: Policy) -> Iterator[Problem]:
    for switch in SWITCHES:
        for variable in switch.variables:
            found = problem_of(switch, variable, policy)
            if found is not None:
                yield found


def check(policy: Policy) -> None:
    """Raise TooLateError or SwitchError; with level "warn", say it in the log "samerun" and go on."""
    found = list(problems(policy))
    if policy.unset_hash_seed == "warn" and policy.level == "error":
        others = [each for each in found if not _is_unset_hash_seed(each)]
        if found and not others:
            _mention_hash_seed()
        found = found if others else []
    if not found:
        return
    if policy.level == "warn":
        for each in found:
            _log.warning("deterministic(): %s. Way out: %s", each.text, each.way_out)
        return
    raise _error(found)


def _is_unset_hash_seed(problem: Problem) -> bool:
    return problem.switch.name == "hash_seed" and problem.found is None


def _mention_hash_seed() -> None:
    """Once in a process: everything else is held still."""
    global _mentioned
    if not _mentioned:
        _mentioned = True
        _log.warning(
            "deterministic(): PYTHONHASHSEED was not set when Python started, so sets of strings have another order in "
            "every process. All else is held still. Way out: samerun run, or export PYTHONHASHSEED=0 first."
        )


def _error(found: list[Problem]) -> SamerunError:
    message = f"deterministic(): {'; '.join(each.text for each in found)}."
    exports = "; ".join(each.way_out for each in found)
    if not any(each.late for each in found):
        return SwitchError(message, f"Before the program starts: {exports}")
    return TooLateError(
        message,
        f"Start the program with `samerun run`, or first: {exports}\n"
        '  To go on without it: deterministic(..., level="warn").',
    )


def environment_wanted(threads: int | None = None, *, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that have to be there before the interpreter, torch and CUDA start. Imports none of them.

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
                raise _error([Problem(switch, variable, own, value, late=False)])
            if value is not None:
                wanted[variable.name] = value if own is None else own
    return wanted
