"""A communication hook of DistributedDataParallel: gradients that do not depend on the number of ranks."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

from samerun.base.errors import SamerunError
from samerun.control.gradient_tree import (
    MicrobatchSums,
    ScratchBuffer,
    tree_all_reduce_mean_in_place,
    warn_unless_power_of_two,
)

if TYPE_CHECKING:
    import torch
    from torch._C._distributed_c10d import GradBucket
    from torch.distributed import ProcessGroup
    from torch.futures import Future


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
    warn_unless_power_of_two("ddp_comm_hook", world)
    state = GradientTreeState(model, group, world)
    # torch wants the annotation dist.GradBucket or none at all; a lambda has none
    model.register_comm_hook(state, lambda state, bucket: sum_microbatches_and_average_bucket(state, bucket))
    return state


class GradientTreeState:
    """The state of the hook: per parameter, the sums over the microbatches before the last one."""

    def __init__(self, model: Any, group: ProcessGroup, world_size: int) -> None:
        self.model, self.group, self.world_size = model, group, world_size
        self.scratch = ScratchBuffer()
        self.sums = MicrobatchSums("ddp_comm_hook")
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._move_unsynced_gradient_into_sums)

    def _move_unsynced_gradient_into_sums(self, parameter: Any) -> None:
        """Take the gradient off the parameter and add it to its partial sums, unless the microbatch is the last."""
        if self.model.require_backward_grad_sync:
            return  # the last microbatch: the reducer takes it from here, to `sum_microbatches_and_average_bucket`
        gradient, parameter.grad = parameter.grad, None
        if gradient is None:
            return
        if gradient.is_sparse:
            raise SamerunError("ddp_comm_hook: a gradient is sparse.", hint="Make the embedding with sparse=False.")
        if self.model.gradient_as_bucket_view:
            gradient = gradient.clone()  # its memory belongs to the bucket, which the next microbatch overwrites
        self.sums.add(parameter, gradient)


def sum_microbatches_and_average_bucket(state: GradientTreeState, bucket: GradBucket) -> Future[torch.Tensor]:
    """The hook that DDP calls: return a future of the bucket's gradients, averaged over ranks."""
    for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
        state.sums.add_earlier_sums_to_last_in_place(parameter, gradient)
    return mean_over_ranks_in_place_as_future(bucket.buffer(), state.group, state.world_size, state.scratch)


def mean_over_ranks_in_place_as_future(
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
