"""A variable of the user's own: `--vary-env NAME=A,B[,C]`."""

from __future__ import annotations

from samerun.base.errors import SamerunError
from samerun.check.plan import Plan, Variation


def parse(text: str) -> list[Variation]:
    """The variations an option names: A is the control value, each other value is one variation.

    Raises SamerunError for anything but NAME=A,B[,C].
    """
    name, equals, rest = text.partition("=")
    values = rest.split(",")
    if not equals or not name or len(values) < 2:
        raise SamerunError(
            f"--vary-env {text}: a name and at least two values are needed.", hint="Write --vary-env NAME=A,B"
        )
    control = values[0]
    return [_variation(name, control, value) for value in values[1:]]


def _variation(name: str, control: str, value: str) -> Variation:
    def vary_variable(plan: Plan, vary: bool) -> Plan:
        return plan.with_environment(**{name: value if vary else control})

    detail = f"{name} {control} -> {value}"
    return Variation(f"env:{name}={value}", "own", detail, vary_variable, "environment-variable")
