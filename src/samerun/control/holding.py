"""Put every switch in force, and give it back as it was found.

Nothing here says whether a switch is in force: whoever asks reads it from torch. What is kept is only what
there was before, and who still has something to give back.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

from samerun.base.after_import import AfterImport
from samerun.control.switches.switch import Policy, Switch
from samerun.control.switches.table import SWITCHES
from samerun.control.too_late import check

_VARIABLES = tuple(dict.fromkeys(each.name for switch in SWITCHES for each in switch.variables))
_holds: list[Hold] = []


class Hold:
    """One `deterministic()` that was begun and has not been left."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.written: set[str] = set()
        """Names of the switches and variables that samerun set."""
        self._environment: dict[str, str | None] = {}
        self._saved: list[tuple[Switch, Any]] = []

    def take(self, again: bool = False) -> None:
        """Put the switches in force. Raises TooLateError or SwitchError, and then nothing is changed.

        `again`: it was checked before, and said what it had to.
        """
        if not again:
            check(self.policy)
        self._environment = {name: os.environ.get(name) for name in _VARIABLES}
        _holds.append(self)
        _arrivals.install()
        try:
            for switch in SWITCHES:
                self._set_variables(switch)
                self._set(switch)
        except BaseException:
            self.release()
            raise

    def arrived(self, module: str) -> None:
        """Put the switches in force that the import of `module` has just brought."""
        for switch in SWITCHES:
            if switch.module == module:
                self._set(switch)

    def release(self) -> None:
        """Give everything back, also what the program changed meanwhile; raise the first failure at the end."""
        if self in _holds:
            _holds.remove(self)
        failed: Exception | None = None
        while self._saved:
            switch, saved = self._saved.pop()
            try:
                switch.restore_snapshot(saved)
            except Exception as error:
                failed = failed or error
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if failed is not None:
            raise failed

    def _set_variables(self, switch: Switch) -> None:
        for variable in switch.variables:
            value = variable.wanted(self.policy)
            if value is None or not variable.settable_inside or variable.name in os.environ or variable.already_read():
                continue
            os.environ[variable.name] = value
            self.written.add(variable.name)

    def _set(self, switch: Switch) -> None:
        if not switch.can_be_restored() or any(switch is one for one, _ in self._saved):
            return
        self._saved.append((switch, switch.take_snapshot()))
        if switch.write is None or not switch.sets_value(self.policy):
            return
        wanted = switch.wanted(self.policy)
        if not switch.agrees(switch.read(), wanted):
            switch.write(wanted)
            self.written.add(switch.name)


def set_by_samerun(name: str) -> bool:
    """Whether a `deterministic()` that still holds has set this switch or variable."""
    return any(name in each.written for each in _holds)


def _arrived(module: ModuleType) -> None:
    for each in list(_holds):  # the outermost first, as if the module had been there all the time
        each.arrived(module.__name__)


_arrivals = AfterImport()
for _name in sorted({switch.module for switch in SWITCHES if switch.module}):
    _arrivals.add(_name, _arrived)
