"""Deterministic mode: seeds, switches and environment held still, and given back as they were found."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Literal, ParamSpec, TypeVar, overload

from samerun.base.errors import SwitchError
from samerun.control import explain
from samerun.control.holding import Hold
from samerun.control.moment import Moment, put_back, take
from samerun.control.seed_derivation import checked
from samerun.control.state import seed_everything
from samerun.control.switches.switch import Policy
from samerun.control.turns import in_turns
from samerun.control.unseeded import watch_unseeded

P = ParamSpec("P")
R = TypeVar("R")


class Deterministic:
    """What `deterministic()` gives: in force already; a context manager; a decorator."""

    def __init__(self, seed: int | None, policy: Policy, unseeded: str, resume: bool = False) -> None:
        self._seed = seed
        self._policy = policy
        self._unseeded = unseeded
        self._resume = resume  # streams go on, when entered again, where the last turn stopped
        self._inside: Moment | None = None
        self._left: list[ExitStack] = []
        self._plain = False  # in force by the call itself, and no `with` has taken it over

    def begin(self) -> Deterministic:
        """Be in force from now on, without a `with`."""
        self._left.append(self._enter())
        self._plain = True
        return self

    def __enter__(self) -> None:
        if self._plain:
            self._plain = False
        else:
            self._left.append(self._enter())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            explain.add_note(error)
        if self._resume:
            self._inside = take(start_devices=False)
        self._left.pop().close()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        if self._plain:  # decorating is not calling: nothing stays in force
            self._plain = False
            self._left.pop().close()
        return in_turns(function, lambda: Deterministic(self._seed, self._policy, self._unseeded, resume=True))

    def _enter(self) -> ExitStack:
        with ExitStack() as leaving:
            hold = Hold(self._policy)
            hold.take(again=self._inside is not None)
            leaving.callback(hold.release)
            leaving.callback(put_back, take(start_devices=False))
            leaving.callback(explain.at_exit())
            if self._inside is not None:
                put_back(self._inside)
            elif self._seed is not None:
                seed_everything(self._seed)
            leaving.callback(watch_unseeded(self._unseeded))
            return leaving.pop_all()


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
    """Hold this process still: same machine, same environment, same command, same bits.

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
    that will not do, SeedError for a seed that is none; nothing is changed then.
    """
    policy = Policy(
        level or "error", fill_uninitialized_memory, precision, threads, cudnn_benchmark,
        unset_hash_seed="warn" if level is None else level,
    )  # fmt: skip
    _check(policy, unseeded)
    if callable(seed):
        return Deterministic(None, policy, unseeded)(seed)
    chosen = None if seed is None else checked(seed, "deterministic")
    return Deterministic(chosen, policy, unseeded).begin()


def _check(policy: Policy, unseeded: str) -> None:
    _one_of("level", policy.level, ("error", "warn"))
    _one_of("precision", policy.precision, ("ieee", "keep"))
    _one_of("cudnn_benchmark", policy.cudnn_benchmark, ("off", "keep"))
    _one_of("unseeded", unseeded, ("ignore", "warn", "error"))
    _one_of("fill_uninitialized_memory", policy.fill_uninitialized_memory, (True, False))
    threads = policy.threads
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        hint = "Pass a number such as threads=4, or leave it out to keep what is in force."
        raise SwitchError(f"deterministic(threads={threads!r}): a number of threads is a whole number from 1.", hint)


def _one_of(name: str, value: object, known: tuple[object, ...]) -> None:
    if not any(value is one or (isinstance(value, str) and value == one) for one in known):
        listed = " or ".join(repr(one) for one in known)
        raise SwitchError(f"deterministic({name}={value!r}): {name} is {listed}.")
