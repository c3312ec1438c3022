"""FSDP2 (`fully_shard`): gradients and their norm that do not depend on the number of ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from samerun.base.errors import SamerunError
from samerun.control.gradient_tree import (
    MicrobatchSums,
    ScratchBuffer,
    tree_reduce_scatter,
    warn_unless_power_of_two,
)

if TYPE_CHECKING:
    import torch


def fsdp_comm_hook(model: Any) -> None:
    """Have a model of `fully_shard` average gradients in a fixed order, the one of `ddp_comm_hook`.

    The same global batch then gives the same gradients, bit for bit, on 1, 2, 4, ... ranks, and the same as under
    DistributedDataParallel with `ddp_comm_hook`: a rank that has k microbatches of it in a row (rank r those from
    r * k to r * k + k - 1) runs k backward passes, all but the last with `model.set_requires_gradient_sync(False)`, and
    divides each loss by k. Microbatches must be of one size, k and the number of ranks powers of two, and every
    parameter must get a gradient in each microbatch or in none. With `MixedPrecisionPolicy` sums are made in its
    reduce_dtype, and are the same for every number of ranks too, but not those of DistributedDataParallel.

    Call it once, after the last `fully_shard` and before the first forward pass. Clip with `samerun.clip_grad_norm_`.
    Not covered: BatchNorm's statistics and dropout, which see the rank's own samples and streams.

    model: what `fully_shard` returned. Raises SamerunError for anything else, for parameters that are replicated over
    another dimension of the mesh (HSDP) or sharded by tensor parallelism as well: those sums are the backend's. Warns
    with SameOnAnyRanks if the number of ranks is not a power of two.

        fully_shard(model)
        samerun.fsdp_comm_hook(model)
    """
    groups = _find_modules_and_param_groups_or_raise(model)
    for module, group in groups:
        _require_sharding_over_one_mesh_dim(module, group)
    warn_unless_power_of_two("fsdp_comm_hook", groups[0][1]._reduce_scatter_process_group.size())
    comm, sums = TreeReduceScatter(), StepSums()
    for module, group in groups:
        module.set_custom_reduce_scatter(comm)
        _wrap_post_backward_to_reduce_microbatch_sum(group, sums)


def _find_modules_and_param_groups_or_raise(model: Any) -> list[tuple[Any, Any]]:
    """The modules that `fully_shard` was called with, and the parameters that each gathers and reduces at once."""
    from torch.distributed.fsdp import FSDPModule

    found = []
    for module in model.modules() if hasattr(model, "modules") else ():
        if isinstance(module, FSDPModule):
            state: Any = module._get_fsdp_state()
            several = getattr(state, "_fsdp_param_groups", None)  # one, before torch 2.12
            found += [(module, group) for group in several or [getattr(state, "_fsdp_param_group", None)] if group]
    if not isinstance(model, FSDPModule) or not found:
        raise SamerunError(
            f"fsdp_comm_hook({type(model).__name__}): it takes a model that fully_shard was called with.",
            hint="from torch.distributed.fsdp import fully_shard; fully_shard(model)",
        )
    return found


def _require_sharding_over_one_mesh_dim(module: Any, param_group: Any) -> None:
    from torch.distributed.fsdp._fully_shard._fsdp_common import DDPMeshInfo, FSDPMeshInfo

    name = type(module).__name__
    if not isinstance(param_group.mesh_info, FSDPMeshInfo) or isinstance(param_group.mesh_info, DDPMeshInfo):
        raise SamerunError(
            f"fsdp_comm_hook: the parameters of {name} are replicated over one dimension of the mesh (HSDP).",
            hint="The sum over replicas is the backend's. Shard over all ranks: a mesh of one dimension.",
        )
    if any(getattr(parameter, "is_dtensor", False) for parameter in param_group.fsdp_params):
        raise SamerunError(
            f"fsdp_comm_hook: the parameters of {name} are sharded by tensor parallelism as well.",
            hint="Sums over ranks of tensor parallelism are the backend's, and depend on their number.",
        )


class StepSums:
    """The sums over microbatches of all parameters, and of how many they were in this step."""

    def __init__(self) -> None:
        self.sums = MicrobatchSums("fsdp_comm_hook")
        self._counts: dict[int, int] = {}
        """Id of a group of parameters that was reduced in this step -> number of its microbatches."""

    def note_microbatch_count_or_raise(self, param_group: Any, microbatch_count: int) -> None:
        """A group is about to be reduced. Raises SamerunError if it got other microbatches than those before it."""
        if id(param_group) in self._counts:
            self._counts.clear()
        expected = next(iter(self._counts.values()), microbatch_count)
        self._counts[id(param_group)] = microbatch_count
        if microbatch_count != expected:
            raise _make_unequal_microbatch_counts_error({microbatch_count, expected})


def _make_unequal_microbatch_counts_error(counts: set[int]) -> SamerunError:
    several = " and ".join(map(str, sorted(counts)))
    return SamerunError(
        f"fsdp_comm_hook: parameters got gradients from {several} microbatches of one step.",
        hint="Every parameter must get a gradient in each microbatch or in none: the order of sums would not be fixed.",
    )


def _wrap_post_backward_to_reduce_microbatch_sum(param_group: Any, step_sums: StepSums) -> None:
    """Before a group of parameters ends its backward pass, put the sum over all microbatches in the gradients' place.

    Where torch would add microbatches one after the other, each is taken away before, and added in the tree.
    """
    original, sums = param_group.post_backward, step_sums.sums

    def post_backward(*unused: Any) -> None:
        with_gradient = [each for each in param_group.fsdp_params if _unsharded_gradient(each) is not None]
        if not param_group.reduce_grads:
            for parameter in with_gradient:
                sums.add(parameter, _remove_gradient_in_reduce_dtype(parameter))
        else:
            counts = {sums.count(each) + 1 for each in with_gradient}
            for parameter in param_group.fsdp_params:  # one without a gradient in the last microbatch
                if parameter not in with_gradient and (count := sums.count(parameter)):
                    counts |= {count, count + 1}
            if len(counts) > 1:
                raise _make_unequal_microbatch_counts_error(counts)
            if with_gradient:
                step_sums.note_microbatch_count_or_raise(param_group, next(iter(counts)))
            for parameter in with_gradient:
                if sums.count(parameter):
                    gradient = _remove_gradient_in_reduce_dtype(parameter)
                    sums.add_earlier_sums_to_last_in_place(parameter, gradient)
                    parameter.unsharded_accumulated_grad = gradient
        original(*unused)

    param_group.post_backward = post_backward


def _unsharded_gradient(parameter: Any) -> Any:
    unsharded = getattr(parameter, "_unsharded_param", None)
    return None if unsharded is None else unsharded.grad


def _remove_gradient_in_reduce_dtype(parameter: Any) -> torch.Tensor:
    """Take the gradient off a parameter, in the dtype in which it will be reduced."""
    gradient: torch.Tensor = parameter.unsharded_param.grad
    parameter.unsharded_param.grad = None
    return gradient.to(parameter.reduce_dtype) if parameter.reduce_dtype is not None else gradient


class TreeReduceScatter:
    """A reduce-scatter for `FSDPModule.set_custom_reduce_scatter`: sums are a balanced binary tree, in rank order."""

    def __init__(self) -> None:
        self._scratch = ScratchBuffer()

    def allocate(self, size: Any, *, dtype: Any, device: Any) -> torch.Tensor:
        """Memory for torch to put gradients into."""
        import torch

        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: Any, input_tensor: Any, group: Any, op: Any, async_op: bool = False) -> None:
        """Write the sum or the mean of this rank's slice. Raises SamerunError for another reduction."""
        from torch.distributed import ReduceOp

        if op not in (ReduceOp.SUM, ReduceOp.AVG):
            raise SamerunError(
                "fsdp_comm_hook: set_gradient_divide_factor() was called.",
                hint="Leave it out, and scale the loss instead.",
            )
        world_size = group.size()
        tree_reduce_scatter(output_tensor, input_tensor, group, world_size, self._scratch)
        if op == ReduceOp.AVG:
            output_tensor.div_(world_size)


def clip_grad_norm_(
    parameters: torch.Tensor | Iterable[torch.Tensor], max_norm: float, norm_type: float = 2.0
) -> torch.Tensor:
    """Scale gradients so that their norm is at most `max_norm`, the same for every number of ranks; returns the norm.

    `torch.nn.utils.clip_grad_norm_` adds the squares of each rank's shard and then those of the ranks, so that the norm
    depends on how many there are. Here each gradient in turn is gathered on every rank: all ranks must call it, and it
    sends as much as gathering the parameters does. Gradients that are not sharded are taken as they are.

    parameters: tensors with `.grad`, DTensors (`fully_shard`) among them; those without a gradient are left out.
    norm_type: the p of the norm; may be `inf`. The norm before clipping has shape () and the gradients' dtype.
    """
    import torch

    listed = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    gradients: list[Any] = [parameter.grad for parameter in listed if parameter.grad is not None]
    if not gradients:
        return torch.tensor(0.0)
    with torch.no_grad():
        return _clip_gradients_and_return_norm(gradients, max_norm, norm_type)


def _clip_gradients_and_return_norm(gradients: list[Any], max_norm: float, norm_type: float) -> torch.Tensor:
    import torch

    norms = [torch.linalg.vector_norm(_gather_gradient_if_sharded(gradient), norm_type) for gradient in gradients]
    total: torch.Tensor = torch.linalg.vector_norm(torch.stack([norm.to(norms[0].device) for norm in norms]), norm_type)
    scale = torch.clamp(max_norm / (total + 1e-6), max=1.0)
    for gradient in gradients:
        local = gradient.to_local() if hasattr(gradient, "to_local") else gradient
        local.mul_(scale.to(local.device))
    return total


def _gather_gradient_if_sharded(gradient: Any) -> Any:
    whole = gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient
    return whole
