"""Take the state of every random generator, and restore it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from samerun.base.errors import SeedError
from samerun.control.rng.seeding import all_sources, available_sources, seed_in_force, seed_sources, set_seed_in_force
from samerun.control.seeds.source import RandomSource

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
    return get_states_of(available_sources())


def get_states_of(sources: Iterable[RandomSource]) -> RNGState:
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
    here = [source.name for source in available_sources()]
    absent = [str(name) for name in state if name not in here]
    if strict and absent:
        raise SeedError(
            f"set_rng_state(): the state holds {', '.join(absent)}, which this process lacks"
            f" (it has {', '.join(here)}).",
            f"{suggest_how_to_make_available(absent)} Or pass strict=False to put back the others.",
        )
    for name, reason in try_set_states(state).items():
        raise SeedError(f"set_rng_state(): {name} did not take its state: {reason}", WHY_REFUSED) from reason


def try_set_states(state: Mapping[str, Any]) -> dict[str, Exception]:
    """Restore the states of the available sources. Returns the errors of those that refused theirs, by name."""
    refused: dict[str, Exception] = {}
    for source in available_sources():
        try:
            if source.name in state:
                source.set_state(state[source.name])
        except Exception as error:
            refused[source.name] = error
    return refused


def suggest_how_to_make_available(absent_sources: list[str]) -> str:
    """What the user can do to make the sources of these names available."""
    modules = {source.name: source.module for source in all_sources()}
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
    sources = available_sources()
    state = get_states_of(source for source in sources if start_devices or not source.starts_device())
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
            new = [source for source in available_sources() if source.name not in snapshot.available]
            seed_sources(snapshot.seed_in_force, new)
