"""The records of this folder (policy, environment variable, switch), and switches that are a flag of torch."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from samerun.control.imported import find_imported_module, get_imported_module

Value = Any
"""Plain: None, bools, numbers, strings, and lists and dicts of them."""

When = Literal["before interpreter", "before torch", "before CUDA", "before library", "any time"]
Level = Literal["error", "warn"]
Precision = Literal["ieee", "keep"]
CudnnBenchmark = Literal["off", "keep"]


@dataclass(frozen=True)
class Policy:
    """What `deterministic()` was asked for; its own documentation says what each means."""

    level: Level = "error"
    fill_uninitialized_memory: bool = True
    precision: Precision = "ieee"
    threads: int | None = None
    cudnn_benchmark: CudnnBenchmark = "off"
    unset_hash_seed: Level = "error"
    """What to do where Python drew the seed of its hashes itself, which nothing can change any more."""


def want_no_value(policy: Policy) -> None:
    """No value is better than another: record the one in force, set nothing."""


def always_true() -> Literal[True]:
    return True


def always_false() -> Literal[False]:
    return False


def accept_any_value(value: str, policy: Policy) -> Literal[True]:
    return True


@dataclass(frozen=True)
class Variable:
    """An environment variable that decides about a switch.

    wanted(policy): the value to set, or None: then it is only recorded (and, if set, checked by `is_valid`).
    is_valid(value, policy): whether a value that the user chose is acceptable; `valid_values` names those for people.
    already_read(): whether whoever reads the variable has read it, so that setting it now changes nothing.
    in_force(): from then on, the value that was read (None: it was not set).
    required: False where a run is deterministic without it; then being too late, or another value, is no error.
    settable_inside: False where setting it in a running process does harm.
    """

    name: str
    wanted: Callable[[Policy], str | None] = want_no_value
    is_valid: Callable[[str, Policy], bool] = accept_any_value
    valid_values: str = "anything"
    already_read: Callable[[], bool] = always_false
    in_force: Callable[[], str | None] | None = None
    required: bool = True
    settable_inside: bool = True

    def read_effective_value(self) -> str | None:
        """Return the value that counts: the one that was read; if nobody has read it yet, that of the environment."""
        if self.in_force is not None and self.already_read():
            return self.in_force()
        return os.environ.get(self.name)


@dataclass(frozen=True)
class Switch:
    """One setting on which the bits of a run depend.

    name: shown to people and by `survey()`; never changed once released.
    what: one sentence. why: why this value, and what is known about it.
    when: the latest moment at which it can be set.
    module: the library whose import brings it; "" when it needs none.
    available(): whether the setting exists, now. Looks only at what is imported, and never imports.
    wanted(policy): the value that is to be in force, or None: nothing is set.
    read(): the value in force, asked of torch (or the environment) itself; plain.
    write(wanted): put that value in force. None: it cannot be changed from inside, or has only variables.
    save(), restore(saved): everything that `write`, or the user, may change; default: `read` and `write`.
    agrees(read, wanted): whether the value in force is as good as the wanted one.
    default: what `read` gives in a fresh process (of a dict, the entries that are known); None: it depends.
    variables: the environment variables that decide about it.
    """

    name: str
    what: str
    why: str
    when: When
    read: Callable[[], Value]
    write: Callable[[Value], None] | None = None
    wanted: Callable[[Policy], Value] = want_no_value
    module: str = ""
    available: Callable[[], bool] = always_true
    save: Callable[[], Any] | None = None
    restore: Callable[[Any], None] | None = None
    agrees: Callable[[Value, Value], bool] = operator.eq
    default: Value = None
    variables: tuple[Variable, ...] = ()

    def save_setting(self) -> Any:
        """Return what `restore_setting` needs to bring back the present setting."""
        return self.save() if self.save is not None else self.read()

    def restore_setting(self, saved: Any) -> None:
        """Bring back the setting that `save_setting` returned."""
        if self.restore is not None:
            self.restore(saved)
        elif self.write is not None and self.read() != saved:
            self.write(saved)

    def can_be_restored(self) -> bool:
        """Return whether the setting exists now, and can be changed."""
        return self.available() and (self.write is not None or self.restore is not None)

    def can_set_wanted_value(self, policy: Policy) -> bool:
        """Return whether the policy wants a value that can be set from inside, here and now."""
        return self.write is not None and self.available() and self.wanted(policy) is not None


def make_variable_value_or_dict_reader(variables: tuple[Variable, ...]) -> Callable[[], Value]:
    """The `read` of a switch that has only variables: the value of its one variable, or those that are set."""

    def read() -> Value:
        values = {variable.name: variable.read_effective_value() for variable in variables}
        if len(values) == 1:
            return next(iter(values.values()))
        return {name: value for name, value in values.items() if value is not None}

    return read


def make_record_only_switch(name: str, what: str, why: str, when: When, *variable_names: str) -> Switch:
    """A switch that only records these environment variables, of which no value is better than another."""
    variables = tuple(Variable(variable) for variable in variable_names)
    return Switch(name, what, why, when, make_variable_value_or_dict_reader(variables), variables=variables)


# Flags of torch's C module, read and set without starting or importing anything.


def torch_is_imported() -> bool:
    return find_imported_module("torch", "_C") is not None


def torch_c_has_functions(*function_names: str) -> bool:
    """Whether torch is imported completely, and its C module has every function in `function_names`."""
    torch = find_imported_module("torch", "_C", "backends", "cuda")
    return torch is not None and all(hasattr(torch._C, name) for name in function_names)


def get_torch_c_module() -> Any:
    """Torch's C module, which holds the flags. The modules of `torch.backends` only show them."""
    return get_imported_module("torch")._C


def torch_is_built_for_nvidia_cuda() -> bool:
    """Whether this torch was built for CUDA, and not for AMD's devices, which it calls CUDA as well."""
    torch = find_imported_module("torch", "_C", "backends", "cuda", "version")
    return torch is not None and torch.backends.cuda.is_built() and not torch.version.hip


def cuda_is_initialized() -> bool:
    torch = find_imported_module("torch", "_C", "cuda")
    return torch is not None and bool(torch.cuda.is_initialized())


def make_torch_flag_switch(
    name: str,
    what: str,
    why: str,
    c_getter_and_setter: tuple[str, str],
    wanted: Callable[[Policy], bool | None],
    *,
    default: bool = False,
    variables: tuple[Variable, ...] = (),
) -> Switch:
    """A switch for one flag of `torch._C`. c_getter_and_setter: the names of its functions there."""
    getter, setter = c_getter_and_setter

    def read() -> bool:
        return bool(getattr(get_torch_c_module(), getter)())

    def write(value: bool) -> None:
        getattr(get_torch_c_module(), setter)(value)

    def available() -> bool:
        return torch_c_has_functions(getter, setter)

    return Switch(
        name, what, why, "any time", read, write, wanted, "torch", available, default=default, variables=variables
    )


def want_true(policy: Policy) -> Literal[True]:
    return True


def want_false(policy: Policy) -> Literal[False]:
    return False


def want_false_unless_precision_kept(policy: Policy) -> Literal[False] | None:
    return None if policy.precision == "keep" else False
