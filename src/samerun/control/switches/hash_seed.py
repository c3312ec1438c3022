"""The seed of `hash(str)`, which orders sets of strings."""

from __future__ import annotations

import sys

from samerun.base.launch import environment_at_start
from samerun.control.switches.switch import Policy, Switch, Variable, always_true

NAME = "PYTHONHASHSEED"
LARGEST = 2**32 - 1


def _read_hash_seed_in_force() -> str | None:
    """The seed this interpreter hashes with; None when it drew one. `os.environ` may say anything by now."""
    if not sys.flags.hash_randomization:
        return "0"
    return None if sys.flags.ignore_environment else environment_at_start().get(NAME)


def _is_valid_hash_seed(value: str, policy: Policy) -> bool:
    return value.isascii() and value.isdigit() and int(value) <= LARGEST


def _choose_hash_seed(policy: Policy) -> str:
    return "0"


SWITCH = Switch(
    "hash_seed",
    "Strings hash the same in every process, so sets of strings have the same order.",
    "Read once, as the interpreter starts. Setting it inside a running program changes nothing there, and makes"
    " child processes hash otherwise than their parent: samerun never does.",
    "before interpreter",
    _read_hash_seed_in_force,
    variables=(
        Variable(
            NAME,
            _choose_hash_seed,
            _is_valid_hash_seed,
            f"a whole number from 0 to {LARGEST}",
            always_true,
            _read_hash_seed_in_force,
            settable_inside=False,
        ),
    ),
)
