"""What the machine tells a program: locale, timezone, clock, hash seed and environment variables."""

from __future__ import annotations

import functools
import subprocess

from samerun.base.errors import SamerunError
from samerun.base.launch import find_trusted_program
from samerun.check.plan import RunPlan, Variation


# The seed of `hash(str)`, which orders sets and everything filled from them.
def vary_or_pin_hash_seed(plan: RunPlan, vary: bool) -> RunPlan:
    """Vary the seed of ``hash(str)``.

    What can go wrong: a loop over a set of names feeds a model in another order; a seed is made with hash().
    """
    return plan.with_environment(PYTHONHASHSEED="2" if vary else "1")


HASH_SEED = Variation("hash_seed", "environment", "PYTHONHASHSEED 1 -> 2", vary_or_pin_hash_seed, "hash-order")


# The date and the time of day.
SHIFT_SECONDS = 34_567_891.0
"""A little over 400 days: another year, month, day, weekday, hour, minute and second."""


def vary_or_pin_clock(plan: RunPlan, vary: bool) -> RunPlan:
    """Vary every clock by 400 days and some hours.

    What can go wrong: a seed is made of the date; a split depends on the weekday.
    """
    return plan.with_watch(clock_shift=SHIFT_SECONDS if vary else 0.0)


CLOCK = Variation("clock", "environment", "clocks shifted by 400 d 2 h 4 min 51 s", vary_or_pin_clock, "time")


# The language of the machine: how texts sort and numbers look.
CONTROL_LOCALE = "C.UTF-8"
PREFERRED_LOCALES = ("tr_TR.utf8", "de_DE.utf8", "fr_FR.utf8", "sv_SE.utf8", "et_EE.utf8")


@functools.cache
def find_installed_non_english_locale_or_posix() -> str:
    """Another locale that this machine has; "POSIX" where it has no other."""
    program = find_trusted_program("locale")
    if program is None:
        return "POSIX"
    listed = subprocess.run([program, "-a"], capture_output=True, text=True, check=False).stdout.split()
    known = {name.lower().replace("-", ""): name for name in listed}
    for name in PREFERRED_LOCALES:
        if name.lower() in known:
            return known[name.lower()]
    others = sorted(n for n in listed if n.lower().endswith(("utf8", "utf-8")) and n[:2] not in ("C.", "en"))
    return others[0] if others else "POSIX"


def vary_or_pin_locale(plan: RunPlan, vary: bool) -> RunPlan:
    """Vary the locale.

    What can go wrong: names sorted by the locale's rules, numbers parsed with the locale's comma.
    """
    value = find_installed_non_english_locale_or_posix() if vary else CONTROL_LOCALE
    return plan.with_environment(LC_ALL=value, LANG=value)


LOCALE = Variation(
    "locale",
    "environment",
    f"LC_ALL {CONTROL_LOCALE} -> {find_installed_non_english_locale_or_posix()}",
    vary_or_pin_locale,
    "environment-variable",
)


# The timezone of the machine.
CONTROL_TIMEZONE, OTHER_TIMEZONE = "UTC0", "XST-11:45XDT,M4.1.0,M10.5.0"


def vary_or_pin_timezone(plan: RunPlan, vary: bool) -> RunPlan:
    """Vary the timezone (a made-up one, +11:45 with summer time, that needs no time zone files).

    What can go wrong: timestamps in the data become features in local time; a split is made by day.
    """
    return plan.with_environment(TZ=OTHER_TIMEZONE if vary else CONTROL_TIMEZONE)


TIMEZONE = Variation(
    "timezone", "environment", "TZ UTC -> +11:45 with summer time", vary_or_pin_timezone, "environment-variable"
)


# Variables that have nothing to do with the program.
NOISE_VARIABLES = ("USER", "LOGNAME", "TERM", "COLUMNS", "LINES", "EDITOR", "HOSTNAME", "UNUSED_VARIABLE")


def vary_or_pin_user_and_host_variables(plan: RunPlan, vary: bool) -> RunPlan:
    """Vary variables that no result should depend on: user name, terminal, host name, one nobody knows.

    What can go wrong: a seed or a folder is made of the user's name; a table is as wide as the terminal.
    """
    value = "other" if vary else "plain"
    values = dict.fromkeys(NOISE_VARIABLES, value)
    values.update(TERM="dumb" if vary else "xterm", COLUMNS="133" if vary else "80", LINES="43" if vary else "24")
    values["UNUSED_VARIABLE"] = "x" * 2000 if vary else "x"
    return plan.with_environment(**values)


ENVIRONMENT_NOISE = Variation(
    "environment_noise", "environment", "USER, TERM, COLUMNS and others changed", vary_or_pin_user_and_host_variables,
    "environment-variable",
)  # fmt: skip


# A variable of the user's own: `--vary-env NAME=A,B[,C]`.
def parse_vary_env_option(text: str) -> list[Variation]:
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
    return [_make_environment_variation(name, control, value) for value in values[1:]]


def _make_environment_variation(name: str, control_value: str, varied_value: str) -> Variation:
    def vary_variable(plan: RunPlan, vary: bool) -> RunPlan:
        return plan.with_environment(**{name: varied_value if vary else control_value})

    detail = f"{name} {control_value} -> {varied_value}"
    return Variation(f"env:{name}={varied_value}", "own", detail, vary_variable, "environment-variable")
