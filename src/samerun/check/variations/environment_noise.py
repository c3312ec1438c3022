"""Variables that have nothing to do with the program."""

from samerun.check.plan import Plan, Variation

VARIABLES = ("USER", "LOGNAME", "TERM", "COLUMNS", "LINES", "EDITOR", "HOSTNAME", "UNUSED_VARIABLE")


def environment_noise(plan: Plan, vary: bool) -> Plan:
    """Vary variables that no result should depend on: user name, terminal, host name, one nobody knows.

    What can go wrong: a seed or a folder is made of the user's name; a table is as wide as the terminal.
    """
    value = "other" if vary else "plain"
    values = dict.fromkeys(VARIABLES, value)
    values.update(TERM="dumb" if vary else "xterm", COLUMNS="133" if vary else "80", LINES="43" if vary else "24")
    values["UNUSED_VARIABLE"] = "x" * 2000 if vary else "x"
    return plan.with_environment(**values)


VARIATION = Variation(
    "environment_noise", "environment", "USER, TERM, COLUMNS and others changed", environment_noise,
    "environment-variable",
)  # fmt: skip
