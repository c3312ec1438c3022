"""What the main process asks of a worker, and what comes back beside the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class Task(NamedTuple):
    """One batch of a map-style dataset.

    indices: of the samples, as the sampler gives them. repetitions: how often each has come before in this
    epoch (or, where that is not counted, its position); None: none has. position: the number of the batch's
    first sample in the epoch, over all ranks; `end`: of the first one behind the batch. alone: one sample, not
    to be made a batch of.
    """

    seed: int
    epoch: int
    indices: list[Any]
    repetitions: list[int] | None
    position: int
    end: int
    alone: bool = False


class ShardTask(NamedTuple):
    """The next batch of a shard of an iterable dataset. shard None: nothing, see `stream_plan`.

    turn: another number in every iteration over the loader. skip: how many samples to pass over if the shard
    is not open yet; state: what the dataset said when it had given them, which spares it (see `stream_state`).
    """

    seed: int
    epoch: int
    turn: int
    shard: int | None
    skip: int
    state: Any = None


@dataclass
class Loaded:
    """A batch and what the main process has to know about it.

    notes: own generators that were found drawing. shard, count, ended, state: of an iterable dataset.
    """

    data: Any
    notes: tuple[str, ...] = ()
    shard: int | None = None
    count: int = 0
    empty: bool = False
    ended: bool = False
    state: Any = None

    def pin_memory(self, device: Any = None) -> Loaded:
        """Torch's thread asks for it."""
        from torch.utils.data._utils import pin_memory

        if not self.empty:
            pin: Any = pin_memory.pin_memory
            self.data = pin(self.data, device)
        return self
