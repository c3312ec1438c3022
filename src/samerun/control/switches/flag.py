"""What the switches share that are one flag of torch's C module, with a function to read and one to set it."""

from __future__ import annotations

from collections.abc import Callable

from samerun.control.switches.started import torch_c, torch_has
from samerun.control.switches.switch import Policy, Switch, Variable


def flag_switch(
    name: str,
    what: str,
    why: str,
    functions: tuple[str, str],
    wanted: Callable[[Policy], bool | None],
    *,
    default: bool = False,
    variables: tuple[Variable, ...] = (),
) -> Switch:
    """A switch for the flag that `functions` (of `torch._C`: the one that reads, the one that sets) stand for."""
    getter, setter = functions

    def read() -> bool:
        return bool(getattr(torch_c(), getter)())

    def write(value: bool) -> None:
        getattr(torch_c(), setter)(value)

    def available() -> bool:
        return torch_has(getter, setter)

    return Switch(
        name, what, why, "any time", read, write, wanted, "torch", available, default=default, variables=variables
    )


def on(policy: Policy) -> bool:
    return True


def off(policy: Policy) -> bool:
    return False


def off_unless_kept(policy: Policy) -> bool | None:
    return None if policy.precision == "keep" else False
