"""Whether a library is installed or loaded, without importing it; and switches that are a variable of one."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable

from samerun.control.switches.switch import Policy, Switch, Variable, set_variables


def installed(name: str) -> Callable[[], bool]:
    def there() -> bool:
        if name in sys.modules:
            return sys.modules[name] is not None
        try:
            return importlib.util.find_spec(name) is not None
        except (ImportError, ValueError):
            return False

    return there


def is_loaded(name: str) -> Callable[[], bool]:
    return lambda: sys.modules.get(name) is not None


def library_switch(name: str, what: str, why: str, module: str, variable: str, value: str) -> Switch:
    """A switch that sets `variable` to `value` for the library `module`, where it is installed."""
    there = installed(module)

    def wanted(policy: Policy) -> str | None:
        return value if there() else None

    def valid(found: str, policy: Policy) -> bool:
        return found == value

    variables = (Variable(variable, wanted, valid, value, is_loaded(module)),)
    return Switch(name, what, why, "before library", set_variables(variables), available=there, variables=variables)
