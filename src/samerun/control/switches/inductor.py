"""Inductor, the compiler behind torch.compile."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

from samerun.control.imported import find_imported_module, get_imported_module
from samerun.control.switches.switch import Policy, Switch, Value, Variable

# A setting may have no value of the user's own: then torch goes by its default. Both are kept: `saved` holds
# the user's own value, or the mark that there is none.

MODULE = "torch._inductor.config"


def make_inductor_settings_predicate(*setting_names: str) -> Callable[[], bool]:
    """A predicate: inductor is imported and has all these settings."""
    return lambda: find_imported_module(MODULE, *setting_names) is not None


def read_inductor_settings(*names: str) -> dict[str, Any]:
    """The values in force of those settings that this version of inductor has."""
    config = get_imported_module(MODULE)
    return {name: getattr(config, name) for name in names if hasattr(config, name)}


def write_inductor_settings(values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(get_imported_module(MODULE), name, value)


def save_inductor_settings(*names: str) -> dict[str, tuple[str, Any]]:
    """For each setting the user's own value, or the mark that there is none, for `restore_inductor_settings`."""
    return {name: _save_user_setting(name) for name in names if hasattr(get_imported_module(MODULE), name)}


def restore_inductor_settings(saved: dict[str, tuple[str, Any]]) -> None:
    for name, (how, value) in saved.items():
        if how == "override":
            _find_user_override_context_variable(name).set(value)
        else:
            setattr(get_imported_module(MODULE), name, value)


def _save_user_setting(setting: str) -> tuple[Literal["value", "override"], Any]:
    """Return the user's override of a setting where torch has such a thing, else the value in force."""
    override = _find_user_override_context_variable(setting)
    return (
        ("value", getattr(get_imported_module(MODULE), setting)) if override is None else ("override", override.get())
    )


def _find_user_override_context_variable(setting: str) -> Any:
    """The context variable in which torch keeps the user's own value; None where torch has no such thing."""
    entries = getattr(get_imported_module(MODULE), "_config", {})
    override = getattr(entries.get(setting), "user_override", None)
    return override if hasattr(override, "get") and hasattr(override, "set") else None


# Inductor (`torch.compile`) in its deterministic mode, whenever it is loaded.

_DETERMINISTIC = "deterministic"


def _read_inductor_deterministic() -> bool:
    return bool(read_inductor_settings(_DETERMINISTIC)[_DETERMINISTIC])


def _set_inductor_deterministic(value: bool) -> None:
    write_inductor_settings({_DETERMINISTIC: value})


def _wanted_inductor_deterministic(policy: Policy) -> Literal[True]:
    return True


DETERMINISTIC = Switch(
    "inductor_deterministic",
    "torch.compile does not choose kernels by timing where that changes bits.",
    "torch.use_deterministic_algorithms sets it and, called with False, erases what you chose;"
    " torch.set_deterministic_debug_mode forgets it. Here it is set as inductor is loaded, whenever that is,"
    " and given back as you had it.",
    "any time",
    _read_inductor_deterministic,
    _set_inductor_deterministic,
    _wanted_inductor_deterministic,
    MODULE,
    make_inductor_settings_predicate(_DETERMINISTIC),
    functools.partial(save_inductor_settings, _DETERMINISTIC),
    restore_inductor_settings,
    default=False,
    variables=(Variable("TORCHINDUCTOR_DETERMINISTIC", already_read=make_inductor_settings_predicate(_DETERMINISTIC)),),
)


# Inductor does not tune kernels by timing them.

_AUTOTUNING_SETTINGS = (
    "max_autotune", "max_autotune_pointwise", "max_autotune_gemm", "coordinate_descent_tuning", "benchmark_fusion",
)  # fmt: skip


_read_autotuning = functools.partial(read_inductor_settings, *_AUTOTUNING_SETTINGS)


def _wanted_autotuning_all_off(policy: Policy) -> dict[str, Literal[False]]:
    return dict.fromkeys(_read_autotuning(), False)


def _is_autotuning_off(read: Value, wanted: Value) -> bool:
    return not any(read.values())


AUTOTUNING = Switch(
    "inductor_autotuning",
    "torch.compile does not tune its kernels by timing them.",
    'mode="max-autotune" of torch.compile asks for it all the same; then inductor\'s deterministic mode keeps it'
    " from changing bits.",
    "any time",
    _read_autotuning,
    write_inductor_settings,
    _wanted_autotuning_all_off,
    MODULE,
    make_inductor_settings_predicate(*_AUTOTUNING_SETTINGS),
    functools.partial(save_inductor_settings, *_AUTOTUNING_SETTINGS),
    restore_inductor_settings,
    agrees=_is_autotuning_off,
    default=dict.fromkeys(_AUTOTUNING_SETTINGS, False),
    variables=tuple(
        Variable(f"TORCHINDUCTOR_{name.upper()}", already_read=make_inductor_settings_predicate(name))
        for name in _AUTOTUNING_SETTINGS
    ),
)


# How inductor draws random numbers, and other settings of its numerics: recorded.

_RANDOM_SETTINGS = ("fallback_random", "align_random_eager", "batch_invariant", "emulate_precision_casts")


_read_random = functools.partial(read_inductor_settings, *_RANDOM_SETTINGS)
RANDOM = Switch(
    "inductor_random",
    "Whether torch.compile draws the random numbers of eager mode, and how closely it follows eager numerics.",
    "Compiled programs draw other numbers than eager ones unless fallback_random is on. Two runs of the same"
    " program agree either way, so nothing is set.",
    "any time",
    _read_random,
    module=MODULE,
    available=make_inductor_settings_predicate("fallback_random"),
    save=functools.partial(save_inductor_settings, *_RANDOM_SETTINGS),
    restore=restore_inductor_settings,
    default=dict.fromkeys(_RANDOM_SETTINGS, False),
)
