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
from typing import Any

from samerun.base.errors import SamerunError

_HINT = (
    "Take 1, 2, 4, 8, ... ranks; with as many microbatches each that the product is the same, the gradients are too."
)


class SameOnAnyRanks(UserWarning):
    """The gradients will depend on the number of ranks."""


def ddp_comm_hook(model: Any, process_group: Any = None) -> Any:
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
    state = TreeState(model, group, world)
    # torch wants the annotation dist.GradBucket or none at all; a lambda has none
    model.register_comm_hook(state, lambda state, bucket: average_bucket(state, bucket))
    return state


class TreeState:
    """Microbatches of this step that wait for the last one: per parameter a binary counter of partial sums."""

    def __init__(self, model: Any, group: Any, world: int) -> None:
        self.model, self.group, self.world = model, group, world
        self.scratch = ScratchBuffer()
        self.waiting: dict[Any, list[Any]] = {}
        """Parameter -> partial sums; entry i is the sum of 2**i microbatches, or None."""
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._take_gradient)

    def _take_gradient(self, parameter: Any) -> None:
        if self.model.require_backward_grad_sync:
            return  # the last microbatch: the reducer takes it from here, to `average_bucket`
        gradient, parameter.grad = parameter.grad, None
        if gradient is None:
            return
        if gradient.is_sparse:
            raise SamerunError("ddp_comm_hook: a gradient is sparse.", hint="Make the embedding with sparse=False.")
        if self.model.gradient_as_bucket_view:
            gradient = gradient.clone()  # its memory belongs to the bucket, which the next microbatch overwrites
        self._add_microbatch(parameter, gradient)

    def _add_microbatch(self, parameter: Any, gradient: Any) -> None:
        """Count one microbatch more: equal powers of two are added, the earlier one on the left."""
        counter = self.waiting.setdefault(parameter, [])
        for at, held in enumerate(counter):
            if held is None:
                counter[at] = gradient
                return
            gradient, counter[at] = held.add_(gradient), None
        counter.append(gradient)

    def add_waiting(self, parameter: Any, gradient: Any) -> None:
        """Add to the last microbatch's gradient, in place, all that waits, and forget it.

        Raises SamerunError if the number of microbatches is not a power of two.
        """
        counter = self.waiting.pop(parameter, [])
        if any(held is None for held in counter):
            number = 1 + sum(1 << at for at, held in enumerate(counter) if held is not None)
            raise SamerunError(f"ddp_comm_hook: a step of {number} microbatches on a rank.", hint=_HINT)
        for held in counter:
            gradient.copy_(held.add_(gradient))


def average_bucket(state: TreeState, bucket: Any) -> Any:
    """The hook: a future of the bucket's gradients, averaged over ranks."""
    for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
        state.add_waiting(parameter, gradient)
    return mean_over_ranks(bucket.buffer(), state.group, state.world, state.scratch)


def mean_over_ranks(buffer: Any, group: Any, world: int, scratch: ScratchBuffer) -> Any:
    """A future of the mean of a flat tensor over ranks, in place: a balanced binary tree over them, in their order."""
    import torch
    import torch.distributed as dist

    if world == 2:
        # Two numbers have one sum, whoever adds them, and meanwhile the backward pass goes on. Halves are exact
        # before the sum as behind it (short of underflow).
        work: Any = dist.all_reduce(buffer.div_(world), group=group, async_op=True)
        return work.get_future().then(_first_value)
    done: Any = torch.futures.Future()
    done.set_result(tree_all_reduce(buffer, group, world, scratch))
    return done


def _first_value(done: Any) -> Any:
    return done.value()[0]


class ScratchBuffer:
    """Memory that is used again for every bucket: fresh pages for each cost as much as sending does."""

    def __init__(self) -> None:
        self._held: Any = None

    def like(self, tensor: Any) -> Any:
        """As many elements as `tensor` has, of any value."""
        held = self._held
        if held is None or held.numel() < tensor.numel() or (held.dtype, held.device) != (tensor.dtype, tensor.device):
            held = self._held = tensor.new_empty(tensor.numel())
        return held[: tensor.numel()]


def tree_all_reduce(buffer: Any, group: Any, world: int, scratch: ScratchBuffer) -> Any:
    """The mean of a flat tensor over ranks, in place: summed as a balanced binary tree over them, in their order."""
    import torch
    import torch.distributed as dist

    if world == 1:
        return buffer
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # its name before torch 2.13
    length = buffer.numel()
    padding = -length % world
    sent = torch.nn.functional.pad(buffer, (0, padding)) if padding else buffer
    parts = scratch.like(sent)
    dist.all_to_all_single(parts, sent, group=group)
    mine = tree_sum(list(parts.view(world, -1))).div_(world)
    if padding:
        gather(parts, mine.contiguous(), group=group)
        buffer.copy_(parts[:length])
    else:
        # `mine` may lie in `parts`, never in the buffer
        gather(buffer, mine, group=group)
    return buffer


def tree_sum(parts: list[Any]) -> Any:
    """The sum of equally shaped tensors as a balanced binary tree: neighbours first. Overwrites them."""
    while len(parts) > 1:
        pairs = [parts[at].add_(parts[at + 1]) for at in range(0, len(parts) - 1, 2)]
        parts = pairs + (parts[-1:] if len(parts) % 2 else [])
    return parts[0]


FEWEST_AFFECTED_RANKS = 3
"""On fewer ranks, a sum does not depend on where in a buffer a gradient lies."""


class OtherBuckets(UserWarning):
    """A resumed training will differ from one that was not interrupted."""


def warn_if_buckets_change(model: Any) -> None:
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
    if ranks < FEWEST_AFFECTED_RANKS or group.rank() != 0 or model.find_unused_parameters:
        return
    if any(isinstance(state, TreeState) for _, state in getattr(model, "_comm_hooks", ())):
        return
    warnings.warn(
        f"DistributedDataParallel on {ranks} ranks changes its buckets after its first step: what goes on from here "
        "gets other bits than a run that was not interrupted. Call samerun.ddp_comm_hook(model) right after the model "
        "was wrapped, in both runs; or wrap it with find_unused_parameters=True.",
        OtherBuckets,
        stacklevel=4,
    )
