"""Switches that are an environment variable alone: the seed of `hash(str)`, and those of libraries with own kernels."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Literal

from samerun.base.launch import read_environ_at_process_start
from samerun.control.hash_seed import python_may_hash_with_seed
from samerun.control.switches.switch import Policy, Switch, Variable, always_true, make_variable_value_or_dict_reader

HASH_SEED_VARIABLE = "PYTHONHASHSEED"
LARGEST_HASH_SEED = 2**32 - 1


def _read_effective_hash_seed() -> str | None:
    """The seed this interpreter hashes with; None when it drew one. `os.environ` may say anything by now."""
    if not sys.flags.hash_randomization:
        return "0"
    seed = "" if sys.flags.ignore_environment else read_environ_at_process_start().get(HASH_SEED_VARIABLE, "")
    try:
        return (
            seed if python_may_hash_with_seed(int(seed)) else None
        )  # `python -R` draws one, whatever the variable says
    except ValueError:  # "random", or unset
        return None


def _accept_hash_seed(value: str, policy: Policy) -> bool:
    return value.isascii() and value.isdigit() and int(value) <= LARGEST_HASH_SEED


def _wanted_hash_seed(policy: Policy) -> Literal["0"]:
    return "0"


HASH_SEED = Switch(
    "hash_seed",
    "Strings hash the same in every process, so sets of strings have the same order.",
    "Read once, as the interpreter starts. Setting it inside a running program changes nothing there, and makes"
    " child processes hash otherwise than their parent: samerun never does.",
    "before interpreter",
    _read_effective_hash_seed,
    variables=(
        Variable(
            HASH_SEED_VARIABLE,
            _wanted_hash_seed,
            _accept_hash_seed,
            f"a whole number from 0 to {LARGEST_HASH_SEED}",
            always_true,
            _read_effective_hash_seed,
            settable_inside=False,
        ),
    ),
)


# Libraries with kernels of their own that read one environment variable as they are imported.


def make_is_installed_predicate(module_name: str) -> Callable[[], bool]:
    """Return a predicate: the module is imported or could be. Does not import it."""

    def is_installed() -> bool:
        if module_name in sys.modules:
            return sys.modules[module_name] is not None
        try:
            return importlib.util.find_spec(module_name) is not None
        except (ImportError, ValueError):
            return False

    return is_installed


def make_is_imported_predicate(module_name: str) -> Callable[[], bool]:
    """Return a predicate: the module is imported."""
    return lambda: sys.modules.get(module_name) is not None


def make_library_variable_switch(
    name: str, what: str, why: str, module: str, variable: str, required_value: str
) -> Switch:
    """A switch that sets `variable` to `required_value` for the library `module`, where it is installed."""
    is_installed = make_is_installed_predicate(module)

    def wanted(policy: Policy) -> str | None:
        return required_value if is_installed() else None

    def is_valid(value: str, policy: Policy) -> bool:
        return value == required_value

    variables = (Variable(variable, wanted, is_valid, required_value, make_is_imported_predicate(module)),)
    read = make_variable_value_or_dict_reader(variables)
    return Switch(name, what, why, "before library", read, available=is_installed, variables=variables)


# Transformer Engine chooses deterministic attention.

TRANSFORMER_ENGINE = make_library_variable_switch(
    "transformer_engine",
    "Transformer Engine takes only deterministic attention kernels.",
    "Its default allows nondeterministic ones. Not tried on a device.",
    "transformer_engine",
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO",
    "0",
)


# Mamba's kernels in their deterministic mode.

MAMBA = make_library_variable_switch(
    "mamba",
    "Mamba's backward kernels add in a fixed order.",
    "By default they need not. Not tried on a device.",
    "mamba_ssm",
    "MAMBA_DETERMINISTIC",
    "1",
)


# The causal convolution of Mamba models in its deterministic mode.

CAUSAL_CONV1D = make_library_variable_switch(
    "causal_conv1d",
    "causal_conv1d's backward kernels add in a fixed order.",
    "From its version 1.6.0 on. Not tried on a device.",
    "causal_conv1d",
    "CAUSAL_CONV1D_DETERMINISTIC",
    "1",
)
