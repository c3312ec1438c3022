"""Tensor parallelism: sums over ranks that do not depend on their number."""

from __future__ import annotations

import functools
from typing import Any

from samerun.base.errors import SamerunError
from samerun.control.gradient_tree import ScratchBuffer

DEFAULT_BLOCKS = 8


def tp_comm_hook(model: Any, blocks: int = DEFAULT_BLOCKS) -> None:
    """Have the linear layers of a model that `parallelize_module` has sharded add in a fixed order.

    Products are cut into `blocks` pieces of the sharded dimension, whatever the number of ranks, and added as one
    balanced binary tree, first on each rank, then over ranks (the tree of `ddp_comm_hook`). So results and gradients
    are the same bits on 1, 2, 4, ... ranks, up to `blocks`: also on one rank, with a mesh of one. That costs: the
    products are smaller, and a sum over ranks is an all_to_all and an all_gather.

    Call it after `parallelize_module`, with ColwiseParallel and RowwiseParallel for `nn.Linear`; embeddings and what is
    not sharded are left as they are, as nothing is added up there. What stands between layers has to compute each
    element by itself, as activations do. Not covered: dropout in a sharded region, and `loss_parallel`, which adds over
    ranks.

    blocks: a power of two, and a multiple of the number of ranks; every sharded dimension a multiple of it. Raises
    SamerunError for anything else, and for a layout whose sums are the backend's: SequenceParallel, several dimensions
    of the mesh, other modules with sharded parameters.

        parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
        samerun.tp_comm_hook(model)
    """
    if blocks < 1 or blocks & (blocks - 1):
        raise SamerunError(f"tp_comm_hook(blocks={blocks}): it is not a power of two.", hint="Take 8, or 16.")
    found = [
        (name or type(module).__name__, module)
        for name, module in getattr(model, "named_modules", list)()
        if any(_is_dtensor(parameter) for parameter in module.parameters(recurse=False))
    ]
    if not found:
        raise SamerunError(
            f"tp_comm_hook({type(model).__name__}): no parameter of it is sharded.",
            hint="Call torch.distributed.tensor.parallel.parallelize_module(model, mesh, plan) first.",
        )
    layers = [(module, _require_supported_and_find_sharded_dimension(name, module, blocks)) for name, module in found]
    scratch = ScratchBuffer()
    for module, dimension in layers:
        if dimension is not None:
            module.forward = functools.partial(_linear_forward_in_blocks, module, dimension, blocks, scratch)


def _is_dtensor(parameter: Any) -> bool:
    from torch.distributed.tensor import DTensor

    return isinstance(parameter, DTensor)


def _require_supported_and_find_sharded_dimension(name: str, module: Any, blocks: int) -> int | None:
    """0 for a linear layer that is sharded by columns, 1 by rows, None where nothing is to be done.

    Raises SamerunError for a module whose sums over ranks are the backend's.
    """
    import torch

    weight = module.weight if isinstance(getattr(module, "weight", None), torch.nn.Parameter) else None
    if isinstance(module, torch.nn.Embedding):
        return None  # of all ranks one has the row: the others add zeros
    if not isinstance(module, torch.nn.Linear) or weight is None or not _is_dtensor(weight):
        raise SamerunError(
            f"tp_comm_hook: the parameters of {name} ({type(module).__name__}) are spread over ranks with sums that are"
            " the backend's.",
            hint="It takes nn.Linear with ColwiseParallel or RowwiseParallel; leave SequenceParallel out.",
        )
    placements, ranks = weight.placements, weight.device_mesh.size()
    dimension = getattr(placements[0], "dim", None)
    if len(placements) != 1 or dimension not in (0, 1):
        raise SamerunError(
            f"tp_comm_hook: {name} is laid out as {placements}.",
            hint="It takes one dimension of the mesh, and ColwiseParallel or RowwiseParallel.",
        )
    size = weight.shape[dimension]
    if blocks % ranks or size % blocks:
        raise SamerunError(
            f"tp_comm_hook: {name} has {size} {'rows' if dimension == 0 else 'columns'}, which {ranks} ranks cannot"
            f" compute in {blocks} blocks of one size.",
            hint="Pass blocks=, a power of two that the number of ranks divides, and that divides the sharded size.",
        )
    return int(dimension)


def _linear_forward_in_blocks(module: Any, sharded_dim: int, blocks: int, scratch: ScratchBuffer, x: Any) -> Any:
    """The forward of a linear layer: what torch's hooks around it pass on and take back are DTensors."""
    from torch.distributed.tensor import DTensor, Replicate, Shard

    from samerun.control.tensor_parallel_products import ColumnParallelLinearInBlocks, RowParallelLinearInBlocks

    mesh = module.weight.device_mesh
    expected = Replicate() if sharded_dim == 0 else Shard(x.dim() - 1)
    given = x.placements[0] if isinstance(x, DTensor) else None
    if given != expected and not (sharded_dim == 1 and given == Shard(-1)):
        raise SamerunError(
            f"tp_comm_hook: a linear layer gets an input laid out as {given}, and needs {expected}.",
            hint="Leave input_layouts to ColwiseParallel and RowwiseParallel.",
        )
    local = x.to_local(grad_placements=[given])
    bias = module.bias.to_local(grad_placements=module.bias.placements) if module.bias is not None else None
    how = mesh.get_group(), blocks // mesh.size(), scratch
    if sharded_dim == 0:
        out = ColumnParallelLinearInBlocks.apply(local, module.weight.to_local(), bias, *how)  # type: ignore[no-untyped-call]
        return DTensor.from_local(out, mesh, [Shard(out.dim() - 1)], run_check=False)
    out = RowParallelLinearInBlocks.apply(local, module.weight.to_local(), bias, *how)  # type: ignore[no-untyped-call]
    return DTensor.from_local(out, mesh, [Replicate()], run_check=False)
