"""How far an iteration over a loader has come, and the tasks from there to the end of the epoch, one per batch.

Tasks are generated from an order, a sampler, or the shards of an iterable dataset. A task says everything that its
batch depends on, so any worker, in any process, loads the same bits for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from samerun.base.errors import DataError
from samerun.control.rng.state import RNGSnapshot, restore_snapshot, take_snapshot
from samerun.data.keys import KeyContext
from samerun.data.order import Order
from samerun.data.seeded_section import GENERATOR_KINDS, SeededSection


@dataclass
class LoaderProgress:
    """Everything that the loader's `state_dict` saves, and where the current iteration began.

    iteration: number of this iteration over the loader. seen: samples of the epoch that were handed over, on all
    ranks together. batches: those on this rank. begin, begin_batches: their values when this iteration began.

    Of an iterable dataset: shards: how many samples of each shard were handed over. ended: shards without further
    samples. states: the dataset's own state in the other shards. next_shard: the one whose batch comes next.
    rank_shards: those of this rank.
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
    rank_shards: list[int] = field(default_factory=list)

    def mark_iteration_start(self) -> LoaderProgress:
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


def parse_loader_state(state: Any, identity: Mapping[str, Any], loader_seed: int | None) -> LoaderProgress:
    """Return the progress that a state dict describes. loader_seed: the loader's seed; None: it adopts that of the
    state.

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
    wrong = [key for key in _COUNTS if key in state and not _is_non_negative_int(state[key])]
    if missing or wrong:
        damage = f"lacks {', '.join(missing)}" if missing else f"holds {state[wrong[0]]!r} as {wrong[0]}"
        raise DataError(f"load_state_dict(): the state {damage}.", "It is damaged, or was changed after state_dict().")
    _require_same_identity(state, identity, loader_seed)
    progress = LoaderProgress(state["seed"], state["epoch"], seen=state["seen"], batches=state["batches"])
    if "virtual_shards" in identity:
        progress.shards = {int(shard): int(count) for shard, count in state["shards"].items()}
        progress.states = {int(shard): saved for shard, saved in state.get("states", {}).items()}
        progress.ended, progress.next_shard = set(map(int, state["ended"])), int(state["following"])
    return progress.mark_iteration_start()


def _is_non_negative_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


_HINTS = {
    "dataset": "Resume with the dataset of the run that saved it.",
    "samples": "Samples came or went since the state was saved. Resume with the same data, or start a new epoch.",
    "order": "Resume with the shuffle= or sampler= of the run that saved it.",
    "name": "Give the loader the name= it had, or load the state into the loader that it is of.",
    "virtual_shards": "Resume with the virtual_shards= of the run that saved it.",
}


def _require_same_identity(state: Mapping[str, Any], identity: Mapping[str, Any], loader_seed: int | None) -> None:
    """Raise DataError if the state is of another dataset, order, name or seed."""
    for key, hint in _HINTS.items():
        if state.get(key) != identity.get(key):
            raise DataError(
                f"load_state_dict(): the state is of another {'number of ' if key == 'samples' else ''}{key}:"
                f" {state.get(key)!r}, and this loader has {identity.get(key)!r}.",
                hint,
            )
    if loader_seed is not None and state["seed"] != loader_seed:
        raise DataError(
            f"load_state_dict(): the state is of seed {state['seed']}, and this loader has seed {loader_seed}.",
            "Resume with the seed of the run that saved it: seed_everything(seed), or DataLoader(seed=seed).",
        )


# --- the tasks of an epoch ---


class BatchTask(NamedTuple):
    """One batch of a map-style dataset.

    indices: those of the samples, as the sampler gives them. repetitions: how often each sample has occurred before
    in this epoch (or, where that is not counted, its position); None: no sample has. position: the number of the
    batch's first sample in the epoch, counted over all ranks; end: that of the first sample behind the batch.
    alone: load one sample without batching it.
    """

    seed: int
    epoch: int
    indices: list[Any]
    repetitions: list[int] | None
    position: int
    end: int
    alone: bool = False


class ShardBatchTask(NamedTuple):
    """The next batch of a shard of an iterable dataset. shard None: an empty task
    (`generate_round_robin_shard_tasks`).

    iteration: a different number in every iteration over the loader. skip: how many samples to skip if the shard is
    not open yet. state: the dataset's own state behind those samples, which makes reading them again unnecessary.
    """

    seed: int
    epoch: int
    iteration: int
    shard: int | None
    skip: int
    state: Any = None


@dataclass
class LoadedBatch:
    """A batch and what the main process has to know about it.

    notes: the dataset's own generators that were drawn from. shard, count, ended, state: of an iterable dataset.
    """

    data: Any
    notes: tuple[str, ...] = ()
    shard: int | None = None
    count: int = 0
    empty: bool = False
    ended: bool = False
    state: Any = None

    def pin_memory(self, device: Any = None) -> LoadedBatch:
        """Pin the batch. torch's pinning thread calls this method on every batch that has one."""
        from torch.utils.data._utils import pin_memory

        if not self.empty:
            pin: Any = pin_memory.pin_memory
            self.data = pin(self.data, device)
        return self


_CHUNK_LENGTH = 1 << 14
"""How many positions are computed at a time: the fixed cost of computing them is about 0.5 ms."""

Shard = tuple[int, int]
"""(rank, number of ranks)."""


def generate_order_tasks(
    order: Order, progress: LoaderProgress, batch_size: int | None, drop_last: bool, rank_and_world_size: Shard
) -> Iterator[BatchTask]:
    """Yield the tasks from `progress` to the end of the epoch, for one rank.

    There is one global order; rank r of w takes positions r, r + w, r + 2w, ... behind what was seen. So the batches
    of all ranks together are a contiguous piece of the global order for every w, and a state can be resumed with
    another number of ranks. At the end the order is padded from its beginning to a multiple of w; with drop_last,
    samples that do not fill a batch on every rank are dropped.
    """
    rank, world = rank_and_world_size
    size = batch_size or 1
    count = count_rank_samples_left(order.length, progress.begin, size, drop_last, world)
    seed = order.seed_for(progress.seed)
    chunk = max(size, _CHUNK_LENGTH // size * size)
    for begin in range(0, count, chunk):
        inside = np.arange(begin, min(begin + chunk, count), dtype=np.uint64)
        positions = inside * np.uint64(world) + np.uint64(progress.begin + rank)
        indices = order.at(positions % np.uint64(order.length), epoch=progress.epoch, seed=seed).tolist()
        repetitions = None
        if order.repeats:
            repetitions = positions.tolist()
        elif int(positions[-1]) >= order.length:
            repetitions = (positions // np.uint64(order.length)).tolist()
        for at in range(0, len(indices), size):
            own = indices[at : at + size]
            first = progress.begin + world * (begin + at)
            end = min(first + world * len(own), order.length)
            again = None if repetitions is None else repetitions[at : at + size]
            yield BatchTask(progress.seed, progress.epoch, own, again, first + rank, end, batch_size is None)


def count_rank_samples_left(
    length: int, seen_on_all_ranks: int, batch_size: int, drop_last: bool, world_size: int
) -> int:
    """Return how many samples each rank has left, behind the `seen_on_all_ranks` samples of all ranks together."""
    left = max(0, length - seen_on_all_ranks)
    return left // (batch_size * world_size) * batch_size if drop_last else -(-left // world_size)


_DRAW_AT_START = (RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler)
"""torch's samplers that draw only when asked for their first index, if at all."""


def generate_index_sampler_tasks(
    sampler: Any, progress: LoaderProgress, batch_size: int | None, drop_last: bool, name: str
) -> Iterator[BatchTask]:
    """Yield the tasks from `progress` on for a sampler that gives single indices."""
    seen, size = 0, batch_size or 1
    repeated = _RepetitionCounter(sampler)
    indices: list[Any] = []
    repetitions: list[int] = []
    for index in _iterate_sampler_with_epoch_seeded_rng(sampler, progress, name):
        repetition = repeated.count_and_get_earlier_occurrences(index)
        seen += 1
        if seen <= progress.begin:
            continue
        indices.append(index)
        repetitions.append(repetition)
        if len(indices) == size:
            yield _make_batch_task(progress, indices, repetitions, seen, batch_size is None)
            indices, repetitions = [], []
    if seen < progress.begin:
        raise _make_short_sampler_error(progress.begin, f"samples, and the sampler gives {seen}")
    if indices and not drop_last:
        yield _make_batch_task(progress, indices, repetitions, seen, False)


def generate_batch_sampler_tasks(sampler: Any, progress: LoaderProgress, name: str) -> Iterator[BatchTask]:
    """Yield the tasks from `progress` on for a sampler that gives lists of indices."""
    seen, batches = 0, 0
    inner = getattr(sampler, "sampler", sampler) if isinstance(sampler, BatchSampler) else sampler
    repeated = _RepetitionCounter(inner)
    for batch in _iterate_sampler_with_epoch_seeded_rng(sampler, progress, name):
        indices = list(batch)
        repetitions = [repeated.count_and_get_earlier_occurrences(index) for index in indices]
        seen, batches = seen + len(indices), batches + 1
        if batches > progress.begin_batches:
            yield _make_batch_task(progress, indices, repetitions, seen, False)
    if batches < progress.begin_batches:
        raise _make_short_sampler_error(progress.begin_batches, f"batches, and the sampler gives {batches}")


def _make_batch_task(
    progress: LoaderProgress, indices: list[Any], repetitions: list[int], end_position: int, unbatched: bool
) -> BatchTask:
    counted = repetitions if any(repetitions) else None
    return BatchTask(
        progress.seed, progress.epoch, indices, counted, end_position - len(indices), end_position, unbatched
    )


class _RepetitionCounter:
    """Counts how often each sample has occurred, if the sampler may give one twice."""

    def __init__(self, sampler: Any) -> None:
        once = isinstance(sampler, (SequentialSampler, SubsetRandomSampler, DistributedSampler))
        once = once or (isinstance(sampler, RandomSampler) and not sampler.replacement)
        self._seen: dict[Any, int] | None = None if once else {}

    def count_and_get_earlier_occurrences(self, index: Any) -> int:
        """Count one occurrence of a sample; return how many there were before."""
        if self._seen is None:
            return 0
        key = index if isinstance(index, int) else repr(index)
        before = self._seen.get(key, 0)
        self._seen[key] = before + 1
        return before


def _iterate_sampler_with_epoch_seeded_rng(sampler: Any, progress: LoaderProgress, name: str) -> Iterator[Any]:
    """Yield what the sampler gives, with generators seeded for the epoch; the program's generators do not move.

    A sampler of the user's may draw at any item. So its generator states are swapped in for every item and swapped
    out again; torch's own samplers draw at the first item, and are spared that cost.
    """
    inner = getattr(sampler, "sampler", None) if type(sampler) is BatchSampler else sampler
    at_once = type(inner) in _DRAW_AT_START
    inside: RNGSnapshot | None = None
    with SeededSection(progress.seed, GENERATOR_KINDS, restore=True) as section:
        section.seed_for_batch_or_shard(KeyContext(progress.seed, name, progress.epoch, "sampler"), 0)
        items = iter(sampler)
        first = next(items, _END)
        inside = None if at_once else take_snapshot(start_devices=False)
    item = first
    while item is not _END:
        yield item
        if inside is None:
            item = next(items, _END)
            continue
        outside = take_snapshot(start_devices=False)
        try:
            restore_snapshot(inside)
            item = next(items, _END)
            inside = take_snapshot(start_devices=False)
        finally:
            restore_snapshot(outside)


_END = object()


def _make_short_sampler_error(saved_position: int, unit_and_count: str) -> DataError:
    return DataError(
        f"The loader's state stands behind {saved_position} {unit_and_count}.",
        "The sampler must give the same samples as in the run that saved the state.",
    )


def generate_round_robin_shard_tasks(
    progress: LoaderProgress, rank_shards: list[int], num_workers: int
) -> Iterator[ShardBatchTask]:
    """Yield one batch of every shard of this rank per round, until all shards have ended.

    torch hands tasks to workers in turn, so a shard stays with one worker if the length of a round is a multiple of
    the number of workers: each round is padded with empty tasks.
    """
    workers = max(1, num_workers)
    slots: list[int | None] = [*rank_shards, *[None] * (-len(rank_shards) % workers)]
    skips, states = dict(progress.shards), dict(progress.states)
    begin = rank_shards.index(progress.next_shard) if progress.next_shard in rank_shards else 0
    while not progress.ended.issuperset(rank_shards):
        for slot, shard in enumerate(slots):
            asked = None if shard in progress.ended or slot < begin else shard
            skip = 0 if asked is None else skips.get(asked, 0)
            state = None if asked is None else states.pop(asked, None)  # its first task opens it
            yield ShardBatchTask(progress.seed, progress.epoch, progress.iteration, asked, skip, state)
        begin = 0


def record_batch_and_rotate_to_next_shard(
    progress: LoaderProgress, rank_shards: list[int], shard: int, loaded: LoadedBatch
) -> None:
    """Note in `progress` that a batch of `shard` was handed over."""
    progress.shards[shard] = progress.shards.get(shard, 0) + loaded.count
    progress.states.pop(shard, None)
    if loaded.state is not None:
        progress.states[shard] = loaded.state
    if loaded.ended:
        progress.ended.add(shard)
    progress.next_shard = rank_shards[(rank_shards.index(shard) + 1) % len(rank_shards)]
