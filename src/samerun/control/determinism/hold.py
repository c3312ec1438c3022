"""Put every switch in force, and restore it as it was found.

Nothing here records whether a switch is in force: whoever asks reads that from torch. Kept are only the settings
from before, and which `deterministic()` still has some to restore.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

from samerun.base.hooks import PostImportHooks
from samerun.control.determinism.preflight import check_environment
from samerun.control.switches.switch import Policy, Switch
from samerun.control.switches.table import SWITCHES

_VARIABLES = tuple(dict.fromkeys(variable.name for switch in SWITCHES for variable in switch.variables))
_holds: list[HeldSwitches] = []


class HeldSwitches:
    """The switches of one `deterministic()` that is in force."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.written: set[str] = set()
        """Names of the switches and variables that samerun set."""
        self._environment: dict[str, str | None] = {}
        self._saved: list[tuple[Switch, Any]] = []

    def hold(self, environment_checked: bool = False) -> None:
        """Put the switches in force. Raises TooLateError or SwitchError, and then nothing is changed.

        `environment_checked`: it was checked before, and its warnings were given.
        """
        if not environment_checked:
            check_environment(self.policy)
        self._environment = {name: os.environ.get(name) for name in _VARIABLES}
        _holds.append(self)
        _import_hook.install()
        try:
            for switch in SWITCHES:
                self._set_unset_variables(switch)
                self._save_and_set_switch(switch)
        except BaseException:
            self.release()
            raise

    def hold_switches_of_module(self, module_name: str) -> None:
        """Put the switches in force that exist since this module was imported."""
        for switch in SWITCHES:
            if switch.module == module_name:
                self._save_and_set_switch(switch)

    def release(self) -> None:
        """Restore everything, also what the program changed meanwhile; raise the first failure at the end."""
        if self in _holds:
            _holds.remove(self)
        failed: Exception | None = None
        while self._saved:
            switch, saved = self._saved.pop()
            try:
                switch.restore_setting(saved)
            except Exception as error:
                failed = failed or error
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if failed is not None:
            raise failed

    def _set_unset_variables(self, switch: Switch) -> None:
        """Set the switch's environment variables that the user has not set and nobody has read yet."""
        for variable in switch.variables:
            value = variable.wanted(self.policy)
            if value is None or not variable.settable_inside or variable.name in os.environ or variable.already_read():
                continue
            os.environ[variable.name] = value
            self.written.add(variable.name)

    def _save_and_set_switch(self, switch: Switch) -> None:
        """Save the present setting, once, and set the wanted one."""
        if not switch.can_be_restored() or any(switch is saved for saved, _ in self._saved):
            return
        self._saved.append((switch, switch.save_setting()))
        if switch.write is None or not switch.can_set_wanted_value(self.policy):
            return
        wanted = switch.wanted(self.policy)
        if not switch.agrees(switch.read(), wanted):
            switch.write(wanted)
            self.written.add(switch.name)


def is_set_by_samerun(switch_or_variable: str) -> bool:
    """Whether a `deterministic()` that is in force has set this switch or variable."""
    return any(switch_or_variable in held.written for held in _holds)


def _hold_switches_of_imported(module: ModuleType) -> None:
    for held in list(_holds):  # the outermost first, as if the module had been imported before them
        held.hold_switches_of_module(module.__name__)


_import_hook = PostImportHooks()
for _name in sorted({switch.module for switch in SWITCHES if switch.module}):
    _import_hook.add(_name, _hold_switches_of_imported)
