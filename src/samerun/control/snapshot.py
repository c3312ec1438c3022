"""Take the state of every random generator, and put it back."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from samerun.base.errors import SeedError
from samerun.control.seeds.source import Source
from samerun.control.sources import every_source, present_sources

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
    return states_of(present_sources())


def states_of(sources: Iterable[Source]) -> RNGState:
    """The state of each of `sources`, which are present; without those that give none."""
    state: RNGState = {}
    for source in sources:
        taken = source.get_state()
        if taken is None:
            _say_left_out(source)
        else:
            state[source.name] = taken
    return state


def set_rng_state(state: Mapping[str, Any], *, strict: bool = True) -> None:
    """Put back what `get_rng_state` gave, in this process or in another.

    A generator that is here but not in `state` keeps its stream. One that is in `state` but not here (its
    library is not imported, its device is missing) raises SeedError before anything is changed; with
    `strict=False` it is passed over. SeedError too if a generator does not take its state; the others are put
    back all the same.
    """
    if not isinstance(state, Mapping):
        hint = "Pass what get_rng_state() returned."
        raise SeedError(f"set_rng_state(): a state is a mapping, not a {type(state).__name__}.", hint)
    here = [source.name for source in present_sources()]
    absent = [str(name) for name in state if name not in here]
    if strict and absent:
        raise SeedError(
            f"set_rng_state(): the state holds {', '.join(absent)}, which this process lacks"
            f" (it has {', '.join(here)}).",
            f"{how_to_get(absent)} Or pass strict=False to put back the others.",
        )
    for name, reason in set_states(state).items():
        raise SeedError(f"set_rng_state(): {name} did not take its state: {reason}", WHY_REFUSED) from reason


def set_states(state: Mapping[str, Any]) -> dict[str, Exception]:
    """Put back the states of the sources that are present; those that refuse theirs, with the reason."""
    refused: dict[str, Exception] = {}
    for source in present_sources():
        try:
            if source.name in state:
                source.set_state(state[source.name])
        except Exception as error:
            refused[source.name] = error
    return refused


def how_to_get(absent: list[str]) -> str:
    """The step that brings the sources of these names into this process."""
    modules = {source.name: source.module for source in every_source()}
    imports = list(dict.fromkeys(f"import {modules[name]}" for name in absent if modules.get(name)))
    register = [f"register_rng({name!r}, ...)" for name in absent if not modules.get(name)]
    return f"Before it: {', '.join(imports + register)}."


@functools.cache
def _say_left_out(source: Source) -> None:
    note = source.note or "it gave no state"
    _log.warning("%s: its random stream is neither saved nor isolated: %s", source.name, note)
