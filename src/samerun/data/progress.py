"""How far one iteration over a loader has come, and the state dict that this is saved as and restored from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from samerun.base.errors import DataError


@dataclass
class LoaderProgress:
    """Everything that the loader's `state_dict` saves, and where the current iteration began.

    iteration: number of this iteration over the loader. seen: samples of the epoch that were handed over, on all
    ranks together. batches: those on this rank. begin, begin_batches: their values when this iteration began.

    Of an iterable dataset: shards: how many samples of each shard were handed over. ended: shards without further
    samples. states: the dataset's own state in the other shards. next_shard: the one whose batch comes next.
    own_shards: those of this rank.
    """

    seed: int
    epoch: int
    iteration: int = 0
    begin: int = 0
    begin_batches: int = 0
    seen: int = 0
    batches: int = 0
    finished: bool = False
    shards: dict[int, int] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    states: dict[int, Any] = field(default_factory=dict)
    next_shard: int = 0
    own_shards: list[int] = field(default_factory=list)

    def mark_as_start(self) -> LoaderProgress:
        """Make the current position the beginning of an iteration; return self."""
        self.begin, self.begin_batches = self.seen, self.batches
        return self


VERSION = 1
"""Version of the state's layout. A newer layout gets a new number, and older ones stay readable."""
_REQUIRED_KEYS = ("seed", "name", "epoch", "seen", "batches", "samples", "order", "dataset")
_COUNTS = ("seed", "epoch", "seen", "batches")


def make_loader_state(progress: LoaderProgress, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the loader's state dict. identity: name, samples, order and dataset of the loader."""
    state: dict[str, Any] = {"samerun_loader": VERSION, "seed": progress.seed, **identity}
    over = progress.finished
    state.update(
        epoch=progress.epoch + over, seen=0 if over else progress.seen, batches=0 if over else progress.batches
    )
    if "virtual_shards" in identity:
        state["shards"] = {} if over else {str(shard): count for shard, count in sorted(progress.shards.items())}
        state["ended"] = [] if over else sorted(progress.ended)
        state["following"] = 0 if over else progress.next_shard
        if progress.states and not over:
            state["states"] = {str(shard): saved for shard, saved in sorted(progress.states.items())}
    return state


def read_loader_state(state: Any, identity: Mapping[str, Any], seed: int | None) -> LoaderProgress:
    """Return the progress that a state dict describes. seed: the loader's seed; None: it adopts that of the state.

    Raises DataError if `state` is not a loader state, or belongs to another dataset, order, name or seed.
    """
    if not isinstance(state, Mapping) or "samerun_loader" not in state:
        shown = f" with the keys {', '.join(sorted(map(str, state))[:8])}" if isinstance(state, Mapping) else ""
        raise DataError(
            f"load_state_dict(): this is not the state of a samerun.data.DataLoader: a {type(state).__name__}{shown}.",
            "Pass what state_dict() of a loader returned.",
        )
    if state["samerun_loader"] != VERSION:
        raise DataError(
            f"load_state_dict(): the state has layout {state['samerun_loader']!r}; known here: {VERSION}.",
            "It was saved by another version of samerun: load it with that one, or a newer one.",
        )
    missing = [key for key in _REQUIRED_KEYS if key not in state]
    wrong = [key for key in _COUNTS if key in state and not _is_count(state[key])]
    if missing or wrong:
        damage = f"lacks {', '.join(missing)}" if missing else f"holds {state[wrong[0]]!r} as {wrong[0]}"
        raise DataError(f"load_state_dict(): the state {damage}.", "It is damaged, or was changed after state_dict().")
    _require_same_identity(state, identity, seed)
    progress = LoaderProgress(state["seed"], state["epoch"], seen=state["seen"], batches=state["batches"])
    if "virtual_shards" in identity:
        progress.shards = {int(shard): int(count) for shard, count in state["shards"].items()}
        progress.states = {int(shard): saved for shard, saved in state.get("states", {}).items()}
        progress.ended, progress.next_shard = set(map(int, state["ended"])), int(state["following"])
    return progress.mark_as_start()


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


_HINTS = {
    "dataset": "Resume with the dataset of the run that saved it.",
    "samples": "Samples came or went since the state was saved. Resume with the same data, or start a new epoch.",
    "order": "Resume with the shuffle= or sampler= of the run that saved it.",
    "name": "Give the loader the name= it had, or load the state into the loader that it is of.",
    "virtual_shards": "Resume with the virtual_shards= of the run that saved it.",
}


def _require_same_identity(state: Mapping[str, Any], identity: Mapping[str, Any], seed: int | None) -> None:
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
