"""Take the state of every random generator and restore it: for checkpoints, and for going back in one process."""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from samerun.base.errors import SeedError
from samerun.base.text import escape_and_truncate_for_terminal
from samerun.control.random_source import DeviceCountMismatch, RandomSource, validate_seed
from samerun.control.rng.seeding import (
    all_random_sources,
    available_random_sources,
    seed_in_force,
    seed_random_sources,
    set_seed_in_force,
)
from samerun.control.streams.process_seed import find_acting_rank

RNGState: TypeAlias = dict[str, Any]
"""Name of a source -> its state, opaque. Only numbers, strings, lists, dicts and CPU tensors (uint8), unless
a registered generator brings others: it pickles, and `torch.load(weights_only=True)` takes it."""

WHY_REFUSED = "It was saved with other devices or another version of the library, or it is damaged."
_log = logging.getLogger("samerun")


def get_rng_state() -> RNGState:
    """The state of every random generator there is now, to be put in a checkpoint.

    CUDA is not started for it if `seed_everything` was called (or torch seeded). A library that can be seeded
    but gives no state (OpenCV, Polars, SentencePiece, CuPy, TensorFlow) is left out; a warning in the log
    "samerun" says so once.
    """
    return get_rng_states_of(available_random_sources())


def get_rng_states_of(sources: Iterable[RandomSource]) -> RNGState:
    """Return the state of each source, by name; a source that gives none is left out, with a warning."""
    state: RNGState = {}
    for source in sources:
        taken = source.get_state()
        if taken is None:
            _warn_no_state_once(source)
        else:
            state[source.name] = taken
    return state


def set_rng_state(state: Mapping[str, Any], *, strict: bool = True) -> None:
    """Restore what `get_rng_state` gave, in this process or in another.

    A generator that is here but not in `state` keeps its stream. One that is in `state` but not here (its
    library is not imported, its device is missing) raises SeedError before anything is changed; with
    `strict=False` it is passed over. SeedError too if a generator does not take its state; the others are put
    back all the same.
    """
    if not isinstance(state, Mapping):
        hint = "Pass what get_rng_state() returned."
        raise SeedError(f"set_rng_state(): a state is a mapping, not a {type(state).__name__}.", hint)
    here = [source.name for source in available_random_sources()]
    absent = [str(name) for name in state if name not in here]
    if strict and absent:
        raise SeedError(
            f"set_rng_state(): the state holds {', '.join(absent)}, which this process lacks"
            f" (it has {', '.join(here)}).",
            f"{suggest_imports_or_registrations(absent)} Or pass strict=False to put back the others.",
        )
    for name, reason in try_set_rng_states(state).items():
        raise SeedError(f"set_rng_state(): {name} did not take its state: {reason}", WHY_REFUSED) from reason


def try_set_rng_states(state: Mapping[str, Any]) -> dict[str, Exception]:
    """Restore the states of the available sources. Returns the errors of those that refused theirs, by name."""
    refused: dict[str, Exception] = {}
    for source in available_random_sources():
        try:
            if source.name in state:
                source.set_state(state[source.name])
        except Exception as error:
            refused[source.name] = error
    return refused


def suggest_imports_or_registrations(absent_sources: list[str]) -> str:
    """What the user can do to make the sources of these names available."""
    modules = {source.name: source.module for source in all_random_sources()}
    imports = list(dict.fromkeys(f"import {modules[name]}" for name in absent_sources if modules.get(name)))
    register = [f"register_rng({name!r}, ...)" for name in absent_sources if not modules.get(name)]
    return f"Before it: {', '.join(imports + register)}."


@functools.cache
def _warn_no_state_once(source: RandomSource) -> None:
    note = source.note or "it gave no state"
    _log.warning("%s: its random stream is neither saved nor isolated: %s", source.name, note)


@dataclass(frozen=True)
class RNGSnapshot:
    """Where all generators stand, to go back to it in the same process: their states, which sources were available,
    and the seed in force."""

    state: RNGState
    available: frozenset[str]
    seed_in_force: int | None


def take_snapshot(start_devices: bool = True) -> RNGSnapshot:
    """Take a snapshot of all generators; without `start_devices`, not of devices that nobody has used."""
    sources = available_random_sources()
    state = get_rng_states_of(source for source in sources if start_devices or not source.starts_device())
    return RNGSnapshot(state, frozenset(source.name for source in sources), seed_in_force())


def restore_snapshot(snapshot: RNGSnapshot) -> None:
    """Go back to a snapshot. Sources imported since then get the seed that they would have got then."""
    set_seed_in_force(snapshot.seed_in_force)
    try:
        set_rng_state(snapshot.state, strict=False)
    finally:
        # Also when a source refuses its state: without its seed, a library that was imported meanwhile would go on
        # from wherever the code in between left it.
        if snapshot.seed_in_force is not None:
            new = [source for source in available_random_sources() if source.name not in snapshot.available]
            seed_random_sources(snapshot.seed_in_force, new)


# --- a plain dict for a checkpoint: all of it is loaded, or nothing ---

VERSION = 1
"""Of the dict's layout. A newer layout gets a new number, and older ones stay readable."""
KEYS = ("samerun_state", "seed", "rank", "rng")


def state_dict() -> dict[str, Any]:
    """All that decides which random numbers this process draws next, for a checkpoint.

        torch.save({"model": model.state_dict(), "samerun": samerun.state_dict()}, path)

    The state of every generator that `seed_everything` knows, of every named stream and registered generator,
    the seed in force and the rank. Plain values and CPU tensors of uint8: `torch.load(weights_only=True)`
    takes it. In a distributed run each rank has its own: save one for each.

    Not in it: `torch.Generator`, `random.Random` and `numpy.random.Generator` objects of your own (use
    `stream`), DataLoader workers, and libraries that give no state (a warning in the log "samerun" says so).
    Keys: "samerun_state" (the version of the layout), "seed", "rank", "rng" (see `get_rng_state`).
    """
    return {
        "samerun_state": VERSION,
        "seed": seed_in_force(),
        "rank": find_acting_rank() or 0,
        "rng": get_rng_states_of(available_random_sources()),
    }


def load_state_dict(state: Mapping[str, Any], *, strict: bool = True) -> None:
    """Draw on from where `state_dict` was taken, in this process or another.

        samerun.load_state_dict(torch.load(path, weights_only=True)["samerun"])

    Load it last, right before the next step: what is built after it (a model, an iterator of a DataLoader)
    draws from it. Generators that exist keep being the same objects. A stream that `state` does not hold had
    not been drawn from, and starts from its beginning.

    strict: True raises, and changes nothing, if `state` and this process differ in the sources they have
    (libraries imported, devices), in the number of devices, or in the rank. False puts back what fits, leaves
    the rest as it is and names it in a warning in the log "samerun"; "distinct" streams of another rank start
    from their beginnings.

    Raises SeedError for that, for a dict that is none of `state_dict`, for another version, and for a state
    that is damaged. Then every stream is put back to where it stood before the call.
    """
    rng = _read_rng_states_or_raise(state)
    before = take_snapshot()
    _raise_or_warn_of_mismatches(state, rng.keys(), before.state.keys(), strict)
    if state["rank"] != (find_acting_rank() or 0):
        rng = _without_rank_distinct_streams(rng)
    refused: dict[str, Exception] = {}
    try:
        set_seed_in_force(state["seed"])
        refused = try_set_rng_states(rng)
        for name, reason in refused.items():
            if not strict and isinstance(reason, DeviceCountMismatch):
                reason_text = escape_and_truncate_for_terminal(str(reason))
                _log.warning("load_state_dict(): %s keeps its stream: the state's is refused: %s", name, reason_text)
            else:
                raise SeedError(
                    f"load_state_dict(): {name} did not take its state: {reason}", _hint_for_refusal(reason)
                ) from reason
    except BaseException:
        restore_snapshot(before)
        raise


def _hint_for_refusal(reason: Exception) -> str:
    if isinstance(reason, DeviceCountMismatch):
        return "Resume with as many devices, or pass strict=False to leave their streams as they are."
    return f"{WHY_REFUSED} Nothing was changed."


def _read_rng_states_or_raise(state: Any) -> dict[str, Any]:
    """Return the states of the sources in `state`; SeedError if it is not what `state_dict` returns."""
    if not isinstance(state, Mapping):
        hint = "Pass what state_dict() returned."
        raise SeedError(f"load_state_dict(): a state is a dict, not a {type(state).__name__}.", hint)
    if "samerun_state" not in state:
        keys = ", ".join(sorted(map(repr, state))[:8]) or "none"
        hint = 'Pass the part of your checkpoint that state_dict() gave, such as checkpoint["samerun"].'
        raise SeedError(f"load_state_dict(): this dict is not from state_dict(); its keys: {keys}.", hint)
    version = state["samerun_state"]
    if version != VERSION:
        hint = "It was saved by another version of samerun: load it with that one, or a newer one."
        raise SeedError(f"load_state_dict(): the state has layout {version!r}; known here: {VERSION}.", hint)
    missing = [key for key in KEYS if key not in state]
    if missing:
        hint = "The checkpoint is damaged, or was changed after state_dict()."
        raise SeedError(f"load_state_dict(): the state lacks {', '.join(missing)}.", hint)
    if state["seed"] is not None:
        validate_seed(state["seed"], "load_state_dict")
    rank, rng = state["rank"], state["rng"]
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 0:
        raise SeedError(f"load_state_dict(): the state's rank is {rank!r}, no whole number from 0.", WHY_REFUSED)
    if not isinstance(rng, Mapping) or not all(isinstance(name, str) for name in rng):
        raise SeedError(f"load_state_dict(): the state's 'rng' is {type(rng).__name__}, no dict of names.", WHY_REFUSED)
    return dict(rng)


def _raise_or_warn_of_mismatches(
    state: Mapping[str, Any], saved_sources: Collection[str], sources_here: Collection[str], strict: bool
) -> None:
    """Raise SeedError if `strict`, else warn, where `state` and this process differ in sources or rank."""
    findings: list[tuple[str, str]] = []
    absent, new = (
        [name for name in saved_sources if name not in sources_here],
        [name for name in sources_here if name not in saved_sources],
    )
    if absent:
        findings.append(
            (f"the state holds {', '.join(absent)}, which this process lacks", suggest_imports_or_registrations(absent))
        )
    if new:
        hint = "Take the state with everything imported that is imported here."
        findings.append((f"this process has {', '.join(new)}, which the state lacks", hint))
    rank = find_acting_rank() or 0
    if state["rank"] != rank:
        hint = "Save the state of every rank, and load each on its own rank."
        findings.append((f"the state is of rank {state['rank']}, and this is rank {rank}", hint))
    for finding, hint in findings:
        if strict:
            raise SeedError(f"load_state_dict(): {finding}.", f"{hint} Or pass strict=False to put back what fits.")
        _log.warning("load_state_dict(): %s", escape_and_truncate_for_terminal(finding))  # names that stood in a file


def _without_rank_distinct_streams(rng: dict[str, Any]) -> dict[str, Any]:
    """Return `rng` without the streams that each rank has for itself."""
    saved = rng.get("streams")
    if not isinstance(saved, Mapping) or not isinstance(saved.get("streams"), list):
        return rng
    same = [one for one in saved["streams"] if isinstance(one, Mapping) and one.get("rank") == "same"]
    return {**rng, "streams": {**saved, "streams": same}}
