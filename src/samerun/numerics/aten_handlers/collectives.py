"""Between processes: moving tensors is exact; sums are taken in ascending rank, one addition after the other."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from samerun.numerics.aten_handlers.declare import NoPortableKernel, split_names

MOVES = frozenset(
    f"c10d::{name}"
    for name in split_names(
        "broadcast_ allgather_ _allgather_base_ allgather_coalesced_ allgather_into_tensor_coalesced_ gather_ scatter_ "
        "send recv_ barrier monitored_barrier_ alltoall_ alltoall_base_ check_for_nan"
    )
)


def allreduce(
    func: OpOverload, tensors: list[Tensor], group: Any, op: Any, sparse: Any, is_async: bool = True, timeout: int = -1
) -> Any:
    """Sums, minima and maxima. Two numbers have one sum; more are gathered and added in ascending rank.

    The result is then sent through the backend's own maximum, which of equal numbers is that number, so that its
    handle (and what DDP reads from it) is the usual one.
    """
    from torch.distributed import AllreduceOptions, ProcessGroup, ReduceOp

    processes = ProcessGroup.unbox(group)
    kind: Any = ReduceOp.RedOpType(op.op())
    whole = all(not tensor.is_floating_point() for tensor in tensors)
    size = processes.size()
    if kind in (ReduceOp.MAX, ReduceOp.MIN) or whole or (kind == ReduceOp.SUM and size <= 2):
        return func(tensors, group, op, sparse, is_async, timeout)
    if kind != ReduceOp.SUM:
        raise NoPortableKernel(f"{kind}.", "Sum, then divide or multiply.")
    for tensor in tensors:
        parts = [torch.empty_like(tensor) for _ in range(size)]
        processes.allgather([parts], [tensor]).wait()
        total: Tensor = parts[0]
        for part in parts[1:]:
            total = total + part
        tensor.copy_(total)
    largest = AllreduceOptions()
    largest.reduceOp = ReduceOp(ReduceOp.MAX)
    work = processes.allreduce(tensors, largest)
    return tensors, work.boxed()
