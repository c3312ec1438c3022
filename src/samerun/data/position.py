"""What a loader's state holds, and whether it fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from samerun.base.errors import DataError
from samerun.data.progress import Progress

VERSION = 1
"""Of the state's layout. A newer layout gets a new number, and older ones stay readable."""
_KEYS = ("seed", "name", "epoch", "seen", "batches", "samples", "order", "dataset")
_WHOLE = ("seed", "epoch", "seen", "batches")


def state_of(progress: Progress, identity: Mapping[str, Any]) -> dict[str, Any]:
    """The state at `progress`. identity: name, samples, order and dataset of the loader."""
    state: dict[str, Any] = {"samerun_loader": VERSION, "seed": progress.seed, **identity}
    over = progress.finished
    state.update(
        epoch=progress.epoch + over, seen=0 if over else progress.seen, batches=0 if over else progress.batches
    )
    if "virtual_shards" in identity:
        state["shards"] = {} if over else {str(shard): count for shard, count in sorted(progress.shards.items())}
        state["ended"] = [] if over else sorted(progress.ended)
        state["following"] = 0 if over else progress.following
        if progress.states and not over:
            state["states"] = {str(shard): held for shard, held in sorted(progress.states.items())}
    return state


def progress_of(state: Any, identity: Mapping[str, Any], seed: int | None) -> Progress:
    """Where the state says the loader is. seed: that of the loader, or None if it takes over the state's.

    Raises DataError for what is no state, and for one of another dataset, order, name or seed.
    """
    if not isinstance(state, Mapping) or "samerun_loader" not in state:
        shown = f" with the keys {', '.join(sorted(map(str, state))[:8])}" if isinstance(state, Mapping) else ""
        raise DataError(
            f"load_state_dict(): this is no state of a samerun.data.DataLoader: a {type(state).__name__}{shown}.",
            "Pass what state_dict() of a loader returned.",
        )
    if state["samerun_loader"] != VERSION:
        raise DataError(
            f"load_state_dict(): the state has layout {state['samerun_loader']!r}; known here: {VERSION}.",
            "It was saved by another version of samerun: load it with that one, or a newer one.",
        )
    missing = [key for key in _KEYS if key not in state]
    wrong = [key for key in _WHOLE if key in state and not _is_whole(state[key])]
    if missing or wrong:
        what = f"lacks {', '.join(missing)}" if missing else f"holds {state[wrong[0]]!r} as {wrong[0]}"
        raise DataError(f"load_state_dict(): the state {what}.", "It is damaged, or was changed after state_dict().")
    _compare(state, identity, seed)
    progress = Progress(state["seed"], state["epoch"], seen=state["seen"], batches=state["batches"])
    if "virtual_shards" in identity:
        progress.shards = {int(shard): int(count) for shard, count in state["shards"].items()}
        progress.states = {int(shard): held for shard, held in state.get("states", {}).items()}
        progress.ended, progress.following = set(map(int, state["ended"])), int(state["following"])
    return progress.at_begin()


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


_HINTS = {
    "dataset": "Resume with the dataset of the run that saved it.",
    "samples": "Samples came or went since the state was saved. Resume with the same data, or start a new epoch.",
    "order": "Resume with the shuffle= or sampler= of the run that saved it.",
    "name": "Give the loader the name= it had, or load the state into the loader that it is of.",
    "virtual_shards": "Resume with the virtual_shards= of the run that saved it.",
}


def _compare(state: Mapping[str, Any], identity: Mapping[str, Any], seed: int | None) -> None:
    for key, hint in _HINTS.items():
        if state.get(key) != identity.get(key):
            raise DataError(
                f"load_state_dict(): the state is of another {'number of ' if key == 'samples' else ''}{key}:"
                f" {state.get(key)!r}, and this loader has {identity.get(key)!r}.",
                hint,
            )
    if seed is not None and state["seed"] != seed:
        raise DataError(
            f"load_state_dict(): the state is of seed {state['seed']}, and this loader has seed {seed}.",
            "Resume with the seed of the run that saved it: seed_everything(seed), or DataLoader(seed=seed).",
        )
