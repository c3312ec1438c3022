"""Gradients that do not depend on the number of ranks: one tree of sums over the microbatches of the global batch.

Floating-point addition is not associative, so a sum over ranks depends on the order of its terms. Here it is
always the same balanced binary tree over the microbatches of the global batch, however they are spread over
ranks: within a rank, microbatches are added as a binary counter carries; over ranks there is one exchange of slices
(all_to_all) and the same tree over slices. With one all_gather behind it, that moves as many bytes as a ring
all-reduce.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from samerun.base.errors import SamerunError

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup

_HINT = (
    "Take 1, 2, 4, 8, ... ranks; with as many microbatches each that the product is the same, the gradients are too."
)


class SameOnAnyRanks(UserWarning):
    """The gradients will depend on the number of ranks."""


def warn_unless_power_of_two(function_name: str, world_size: int) -> None:
    """Warn with SameOnAnyRanks, at the caller of `function_name`, of a number of ranks that has no balanced tree."""
    if world_size & (world_size - 1):
        message = f"{function_name}: {world_size} ranks are not a power of two. {_HINT}"
        warnings.warn(message, SameOnAnyRanks, stacklevel=3)


class MicrobatchSums:
    """Per parameter, a binary counter of the gradients of microbatches: equal powers of two are added.

    `function`: the name of the public function, for errors.
    """

    def __init__(self, function_name: str) -> None:
        self.function = function_name
        self.partial_sums: dict[Any, list[torch.Tensor | None]] = {}
        """Parameter -> partial sums; entry i is the sum of 2**i microbatches, or None."""

    def add(self, parameter: Any, gradient: torch.Tensor) -> None:
        """Add the gradient of one microbatch, which is kept and overwritten; the earlier sum stands on the left."""
        counter = self.partial_sums.setdefault(parameter, [])
        for level, partial_sum in enumerate(counter):
            if partial_sum is None:
                counter[level] = gradient
                return
            gradient, counter[level] = partial_sum.add_(gradient), None
        counter.append(gradient)

    def count(self, parameter: Any) -> int:
        """How many microbatches were added since the last sum was taken."""
        counter = self.partial_sums.get(parameter, [])
        return sum(1 << level for level, partial_sum in enumerate(counter) if partial_sum is not None)

    def add_earlier_sums_to_last_in_place(self, parameter: Any, last_gradient: torch.Tensor) -> None:
        """Add to the last microbatch's gradient, in place, the sums over the others, and forget those.

        Raises SamerunError if the number of microbatches is not a power of two.
        """
        count = 1 + self.count(parameter)
        sums = self.partial_sums.pop(parameter, [])
        if count & (count - 1):
            raise SamerunError(f"{self.function}: a step of {count} microbatches on a rank.", hint=_HINT)
        for partial_sum in sums:
            assert partial_sum is not None  # one less than a power of two has every bit set
            last_gradient.copy_(partial_sum.add_(last_gradient))


class ScratchBuffer:
    """Memory that is reused for every bucket: fresh pages for each would cost as much as sending does."""

    def __init__(self) -> None:
        self._memory: Any = None

    def flat_empty_like(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a flat, uninitialized tensor with as many elements as `tensor`."""
        memory = self._memory
        wanted = tensor.dtype, tensor.device
        if memory is None or memory.numel() < tensor.numel() or (memory.dtype, memory.device) != wanted:
            memory = self._memory = tensor.new_empty(tensor.numel())
        flat: torch.Tensor = memory[: tensor.numel()]
        return flat


def tree_all_reduce_mean_in_place(
    buffer: torch.Tensor, group: ProcessGroup, world_size: int, scratch: ScratchBuffer
) -> torch.Tensor:
    """Return the mean of a flat tensor over ranks, in place: summed as a balanced binary tree, in rank order."""
    return _tree_all_reduce_in_place(buffer, group, world_size, scratch, world_size)


def tree_all_reduce_sum_in_place(
    buffer: torch.Tensor, group: ProcessGroup, world_size: int, scratch: ScratchBuffer
) -> torch.Tensor:
    """Return the sum of a flat tensor over ranks, in place: a balanced binary tree, in rank order."""
    return _tree_all_reduce_in_place(buffer, group, world_size, scratch, 1)


def _tree_all_reduce_in_place(
    buffer: torch.Tensor, group: ProcessGroup, world_size: int, scratch: ScratchBuffer, divisor: int
) -> torch.Tensor:
    import torch
    import torch.distributed as dist

    if world_size == 1:
        return buffer
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # its name before torch 2.13
    length = buffer.numel()
    padding = -length % world_size
    sent = torch.nn.functional.pad(buffer, (0, padding)) if padding else buffer
    parts = scratch.flat_empty_like(sent)
    dist.all_to_all_single(parts, sent, group=group)
    mine = tree_sum_in_place(list(parts.view(world_size, -1)))
    if divisor > 1:
        mine.div_(divisor)
    if padding:
        gather(parts, mine.contiguous(), group=group)
        buffer.copy_(parts[:length])
    else:
        # `mine` may lie in `parts`, never in the buffer
        gather(buffer, mine, group=group)
    return buffer


def tree_sum_in_place(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return the sum of equally shaped tensors as a balanced binary tree: neighbours first. Overwrites them."""
    while len(tensors) > 1:
        pairs = [tensors[at].add_(tensors[at + 1]) for at in range(0, len(tensors) - 1, 2)]
        tensors = pairs + (tensors[-1:] if len(tensors) % 2 else [])
    return tensors[0]


def tree_reduce_scatter(
    output: torch.Tensor, buffer: torch.Tensor, group: ProcessGroup, world_size: int, scratch: ScratchBuffer
) -> None:
    """Write this rank's slice of the sum of a flat tensor over ranks: a balanced binary tree, in rank order.

    buffer: world_size times as many elements as `output`; it is not changed.
    """
    import torch.distributed as dist

    parts = scratch.flat_empty_like(buffer)
    dist.all_to_all_single(parts, buffer, group=group)
    output.copy_(tree_sum_in_place(list(parts.view(world_size, -1))))
