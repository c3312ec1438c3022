"""Deterministic mode: seeds, switches and environment are fixed, and restored as they were found.

Nothing here records whether a switch is in force: whoever asks reads that from torch. Kept are only the settings
from before, and which `deterministic()` still has some to restore.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from types import ModuleType, TracebackType
from typing import Any, Literal, ParamSpec, TypeVar, overload

from samerun.base.errors import SwitchError
from samerun.base.hooks import PostImportHooks
from samerun.control.determinism.refused_operator import add_note_if_operator_was_refused, install_refusal_excepthook
from samerun.control.determinism.survey import names_set_by_samerun, raise_or_log_environment_problems
from samerun.control.determinism.unseeded import OnUnseeded, start_reporting_unseeded_generators_and_entropy
from samerun.control.random_source import validate_seed
from samerun.control.rng.isolation import wrap_in_context
from samerun.control.rng.seeding import seed_everything
from samerun.control.rng.state import RNGSnapshot, restore_snapshot, take_snapshot
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

    def hold(self, skip_environment_check: bool = False) -> None:
        """Put the switches in force. Raises TooLateError or SwitchError, and then nothing is changed.

        `skip_environment_check`: for an environment that was checked, and warned of, before.
        """
        if not skip_environment_check:
            raise_or_log_environment_problems(self.policy)
        self._environment = {name: os.environ.get(name) for name in _VARIABLES}
        _holds.append(self)
        names_set_by_samerun.append(self.written)
        _import_hook.install()
        try:
            for switch in SWITCHES:
                self._set_unset_variables(switch)
                self._save_and_set_switch(switch)
        except BaseException:
            self.release()
            raise

    def save_and_set_switches_of_module(self, module_name: str) -> None:
        """Put the switches in force that exist since this module was imported."""
        for switch in SWITCHES:
            if switch.module == module_name:
                self._save_and_set_switch(switch)

    def release(self) -> None:
        """Restore everything, also what the program changed meanwhile; raise the first failure at the end."""
        if self in _holds:
            _holds.remove(self)
        names_set_by_samerun[:] = [written for written in names_set_by_samerun if written is not self.written]
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


def _set_switches_of_imported_module(module: ModuleType) -> None:
    for held in list(_holds):  # the outermost first, as if the module had been imported before them
        held.save_and_set_switches_of_module(module.__name__)


_import_hook = PostImportHooks()
for _name in sorted({switch.module for switch in SWITCHES if switch.module}):
    _import_hook.call_now_or_after_import(_name, _set_switches_of_imported_module)


P = ParamSpec("P")
R = TypeVar("R")


class Deterministic:
    """What `deterministic()` returns: in force already, a context manager, and a decorator."""

    def __init__(self, seed: int | None, policy: Policy, unseeded: OnUnseeded, resume: bool = False) -> None:
        self._seed = seed
        self._policy = policy
        self._unseeded = unseeded
        self._resume = resume  # when entered again, the streams go on where the last turn stopped
        self._snapshot_inside: RNGSnapshot | None = None
        self._exit_stacks: list[ExitStack] = []
        self._active_without_with = False  # in force by the call alone, and no `with` has taken over

    def enter_without_with(self) -> Deterministic:
        """Put the mode in force from now on, without a `with`."""
        self._exit_stacks.append(self._put_in_force())
        self._active_without_with = True
        return self

    def __enter__(self) -> None:
        if self._active_without_with:
            self._active_without_with = False
        else:
            self._exit_stacks.append(self._put_in_force())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            add_note_if_operator_was_refused(error)
        if self._resume:
            self._snapshot_inside = take_snapshot(start_devices=False)
        self._exit_stacks.pop().close()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        if self._active_without_with:  # decorating a function must not leave the mode in force
            self._active_without_with = False
            self._exit_stacks.pop().close()
        return wrap_in_context(function, lambda: Deterministic(self._seed, self._policy, self._unseeded, resume=True))

    def _put_in_force(self) -> ExitStack:
        """Put everything in force; closing the returned stack restores it.

        The order is that of the restoring, reversed: the entropy watch ends first, the switches come back last, so
        that states are put back under the settings they were taken under.
        """
        with ExitStack() as on_leave:
            held = HeldSwitches(self._policy)
            held.hold(skip_environment_check=self._snapshot_inside is not None)
            on_leave.callback(held.release)
            on_leave.callback(restore_snapshot, take_snapshot(start_devices=False))
            on_leave.callback(install_refusal_excepthook())
            if self._snapshot_inside is not None:
                restore_snapshot(self._snapshot_inside)
            elif self._seed is not None:
                seed_everything(self._seed)
            on_leave.callback(start_reporting_unseeded_generators_and_entropy(self._unseeded))
            return on_leave.pop_all()


@overload
def deterministic(seed: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def deterministic(
    seed: int | None = None,
    *,
    level: Literal["error", "warn"] | None = None,
    fill_uninitialized_memory: bool = True,
    precision: Literal["ieee", "keep"] = "ieee",
    threads: int | None = None,
    cudnn_benchmark: Literal["off", "keep"] = "off",
    unseeded: Literal["ignore", "warn", "error"] = "ignore",
) -> Deterministic: ...
def deterministic(
    seed: Callable[P, R] | int | None = None,
    *,
    level: Literal["error", "warn"] | None = None,
    fill_uninitialized_memory: bool = True,
    precision: Literal["ieee", "keep"] = "ieee",
    threads: int | None = None,
    cudnn_benchmark: Literal["off", "keep"] = "off",
    unseeded: Literal["ignore", "warn", "error"] = "ignore",
) -> Callable[P, R] | Deterministic:
    """Make this process deterministic: same machine, same environment, same command, same bits.

    `deterministic(0)` alone is in force from then on. `with deterministic(0):` and `@deterministic(0)` are in
    force inside, and on leaving, also through an exception, give back every random stream, flag and variable
    as it was found, whatever the program did to them inside. They may be nested. A decorated generator,
    coroutine or async generator is inside only while it runs. Seeded, but not given back: a library that gives
    no state (OpenCV, ...), and a device that had not started and never been seeded, which is not started for it.
    All of it belongs to the process, not to a thread.

    Operators of which torch has no deterministic algorithm are computed by samerun's (docs/reference/operators.md).

    seed: a whole number from 0 to 2**64-1, for `seed_everything`. None: the streams go on from where they are.
    level: "error" raises when a setting comes too late, and torch raises for the operators that are left without a
        deterministic algorithm. "warn" says both (log "samerun", Python's warnings) and goes on. None: as "error", but
        a plain `python` without PYTHONHASHSEED, which every notebook is, is said once (log "samerun").
    fill_uninitialized_memory: whether fresh memory holds a known value. False is faster; for programs that
        never read memory before they write it.
    precision: "ieee" computes float32 in float32, not TF32, and sums half precision in float32; "keep" leaves
        that as it is.
    threads: the number of threads that share an operator on the CPU; None leaves it.
    cudnn_benchmark: "off" lets cuDNN choose algorithms by rule; "keep" leaves the flag to you, for programs
        that need the same bits only within one process.
    unseeded: what to do when the program's own code makes a generator without a seed or draws from the
        system's entropy: "ignore", "warn" (log "samerun") or "error" (UnseededError, with the line).

    Torch is not imported for it: if it comes later, its switches are set as its import ends. A value that you
    set in the environment is never overwritten. What can be set only before the interpreter (PYTHONHASHSEED),
    torch or CUDA start, `samerun run` sets.

    Raises TooLateError if that moment has passed, SwitchError for an argument or a value in the environment
    that is not valid, SeedError for an invalid seed; nothing is changed then.
    """
    policy = Policy(
        level or "error", fill_uninitialized_memory, precision, threads, cudnn_benchmark,
        unset_hash_seed="warn" if level is None else level,
    )  # fmt: skip
    _require_valid_arguments(policy, unseeded)
    if callable(seed):
        return Deterministic(None, policy, unseeded)(seed)
    chosen = None if seed is None else validate_seed(seed, "deterministic")
    return Deterministic(chosen, policy, unseeded).enter_without_with()


def _require_valid_arguments(policy: Policy, unseeded: OnUnseeded) -> None:
    _require_choice("level", policy.level, ("error", "warn"))
    _require_choice("precision", policy.precision, ("ieee", "keep"))
    _require_choice("cudnn_benchmark", policy.cudnn_benchmark, ("off", "keep"))
    _require_choice("unseeded", unseeded, ("ignore", "warn", "error"))
    _require_choice("fill_uninitialized_memory", policy.fill_uninitialized_memory, (True, False))
    threads = policy.threads
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        hint = "Pass a number such as threads=4, or leave it out to keep what is in force."
        raise SwitchError(f"deterministic(threads={threads!r}): a number of threads is a whole number from 1.", hint)


def _require_choice(argument: str, value: object, choices: tuple[object, ...]) -> None:
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        listed = " or ".join(map(repr, choices))
        raise SwitchError(f"deterministic({argument}={value!r}): {argument} is {listed}.")
