"""A communication hook of DistributedDataParallel: gradients that do not depend on the number of ranks.

Floating-point addition is not associative, so a sum over ranks depends on the order of its terms. Here it is
always the same balanced binary tree over the microbatches of the global batch, however they are spread over
ranks: within a rank, microbatches are added as a binary counter carries; two ranks have but one sum; over more there
is one exchange of slices (all_to_all), the same tree over slices, and one all_gather. That moves as many bytes as a
ring all-reduce.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

from samerun.base.errors import SamerunError

if TYPE_CHECKING:
    import torch
    from torch._C._distributed_c10d import GradBucket
    from torch.distributed import ProcessGroup
    from torch.futures import Future

_HINT = (
    "Take 1, 2, 4, 8, ... ranks; with as many microbatches each that the product is the same, the gradients are too."
)


class SameOnAnyRanks(UserWarning):
    """The gradients will depend on the number of ranks."""


def ddp_comm_hook(model: Any, process_group: ProcessGroup | None = None) -> GradientTreeState:
    """Have a DistributedDataParallel model average gradients in a fixed order; returns the hook's state.

    The same global batch then gives the same gradients, bit for bit, on 1, 2, 4, ... ranks: a rank that has k
    microbatches of it in a row (rank r those from r * k to r * k + k - 1) runs k backward passes, all but the
    last inside `model.no_sync()`, and divides each loss by k, as gradient accumulation does anyway. Microbatches
    must be of one size, and k and the number of ranks powers of two. It also makes a resumed run go on alike at
    3 or more ranks, where plain DDP does not: it changes its buckets after the first step.

    Call it once, right after DDP was made, and `zero_grad(set_to_none=True)` (torch's default) between steps.
    Gradients are read from `.grad` after the last backward pass as always; between the passes of one step `.grad`
    is None. Not covered: BatchNorm's statistics and dropout, which see the rank's own samples and streams.

    model: a torch.nn.parallel.DistributedDataParallel whose gradients are dense. Raises SamerunError for
    anything else. Warns with SameOnAnyRanks if the number of ranks is not a power of two: gradients are then the
    same from run to run, and after a resume, at this number of ranks alone.

        model = torch.nn.parallel.DistributedDataParallel(model)
        samerun.ddp_comm_hook(model)
    """
    import torch

    if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise SamerunError(
            f"ddp_comm_hook({type(model).__name__}): it takes a DistributedDataParallel.",
            hint="Wrap the model first: torch.nn.parallel.DistributedDataParallel(model)",
        )
    group = process_group if process_group is not None else model.process_group
    world = torch.distributed.get_world_size(group)
    if world & (world - 1):
        warnings.warn(f"ddp_comm_hook: {world} ranks are not a power of two. {_HINT}", SameOnAnyRanks, stacklevel=2)
    state = GradientTreeState(model, group, world)
    # torch wants the annotation dist.GradBucket or none at all; a lambda has none
    model.register_comm_hook(state, lambda state, bucket: average_bucket_over_ranks(state, bucket))
    return state


class GradientTreeState:
    """The state of the hook: per parameter, a binary counter of sums over the microbatches before the last one."""

    def __init__(self, model: Any, group: ProcessGroup, world_size: int) -> None:
        self.model, self.group, self.world_size = model, group, world_size
        self.scratch = ScratchBuffer()
        self.partial_sums: dict[torch.Tensor, list[torch.Tensor | None]] = {}
        """Parameter -> partial sums; entry i is the sum of 2**i microbatches, or None."""
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._collect_unsynced_gradient)

    def _collect_unsynced_gradient(self, parameter: Any) -> None:
        """Take the gradient off the parameter and add it to its partial sums, unless the microbatch is the last."""
        if self.model.require_backward_grad_sync:
            return  # the last microbatch: the reducer takes it from here, to `average_bucket_over_ranks`
        gradient, parameter.grad = parameter.grad, None
        if gradient is None:
            return
        if gradient.is_sparse:
            raise SamerunError("ddp_comm_hook: a gradient is sparse.", hint="Make the embedding with sparse=False.")
        if self.model.gradient_as_bucket_view:
            gradient = gradient.clone()  # its memory belongs to the bucket, which the next microbatch overwrites
        self._add_to_partial_sums(parameter, gradient)

    def _add_to_partial_sums(self, parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        """Add one microbatch to the binary counter: equal powers of two are added, the earlier one on the left."""
        counter = self.partial_sums.setdefault(parameter, [])
        for level, partial_sum in enumerate(counter):
            if partial_sum is None:
                counter[level] = gradient
                return
            gradient, counter[level] = partial_sum.add_(gradient), None
        counter.append(gradient)

    def add_partial_sums_to_last(self, parameter: torch.Tensor, last_gradient: torch.Tensor) -> None:
        """Add to the last microbatch's gradient, in place, the sums over the others, and forget those.

        Raises SamerunError if the number of microbatches is not a power of two.
        """
        counter = self.partial_sums.pop(parameter, [])
        sums = [partial_sum for partial_sum in counter if partial_sum is not None]
        if len(sums) < len(counter):
            count = 1 + sum(1 << level for level, partial_sum in enumerate(counter) if partial_sum is not None)
            raise SamerunError(f"ddp_comm_hook: a step of {count} microbatches on a rank.", hint=_HINT)
        for partial_sum in sums:
            last_gradient.copy_(partial_sum.add_(last_gradient))


def average_bucket_over_ranks(state: GradientTreeState, bucket: GradBucket) -> Future[torch.Tensor]:
    """The hook that DDP calls: return a future of the bucket's gradients, averaged over ranks."""
    for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
        state.add_partial_sums_to_last(parameter, gradient)
    return start_mean_over_ranks_in_place(bucket.buffer(), state.group, state.world_size, state.scratch)


def start_mean_over_ranks_in_place(
    buffer: torch.Tensor, group: ProcessGroup, world_size: int, scratch: ScratchBuffer
) -> Future[torch.Tensor]:
    """Return a future of the mean of a flat tensor over ranks, in place: a balanced binary tree, in rank order."""
    import torch
    import torch.distributed as dist

    if world_size == 2:
        # Two numbers have one sum, whoever adds them, and meanwhile the backward pass goes on. Halves are exact
        # before the sum as behind it (short of underflow).
        work: Any = dist.all_reduce(buffer.div_(world_size), group=group, async_op=True)
        reduced: Future[torch.Tensor] = work.get_future().then(_get_reduced_tensor)
        return reduced
    done: Future[torch.Tensor] = torch.futures.Future()
    done.set_result(tree_all_reduce_mean_in_place(buffer, group, world_size, scratch))
    return done


def _get_reduced_tensor(all_reduce: Future[list[torch.Tensor]]) -> torch.Tensor:
    return all_reduce.value()[0]


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
    mine = tree_sum_in_place(list(parts.view(world_size, -1))).div_(world_size)
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


MIN_AFFECTED_RANKS = 3
"""On fewer ranks, a sum does not depend on where in a buffer a gradient lies."""


class OtherBuckets(UserWarning):
    """A resumed training will differ from one that was not interrupted."""


def warn_if_ddp_buckets_change(model: Any) -> None:
    """Warn with OtherBuckets if a model about to resume is a DistributedDataParallel that changes its buckets.

    It puts gradients into other buckets after its first step, and on 3 or more ranks the backend's sum depends on
    the place in the bucket. A process that resumes has its first step again: other bits from there on. Silent for
    any other object, on fewer ranks, with `samerun.ddp_comm_hook`, and with `find_unused_parameters=True`, which
    keeps the buckets. Of all ranks, the first warns. Imports nothing.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.parallel.DistributedDataParallel):
        return
    group = model.process_group
    ranks = group.size()
    if ranks < MIN_AFFECTED_RANKS or group.rank() != 0 or model.find_unused_parameters:
        return
    if any(isinstance(state, GradientTreeState) for _, state in getattr(model, "_comm_hooks", ())):
        return
    warnings.warn(
        f"DistributedDataParallel on {ranks} ranks changes its buckets after its first step: what goes on from here "
        "gets other bits than a run that was not interrupted. Call samerun.ddp_comm_hook(model) right after the model "
        "was wrapped, in both runs; or wrap it with find_unused_parameters=True.",
        OtherBuckets,
        stacklevel=4,
    )
