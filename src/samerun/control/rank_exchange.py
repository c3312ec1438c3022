"""Send values from rank to rank, beside the program's own collectives; and arguments of a step so that they fit."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

from samerun.base.errors import SamerunError
from samerun.base.hooks import hide_from_recorder

SHAPES_HINT = (
    "A rank can only compute the step of another with parts of the same shapes: with fully_shard or tensor parallelism,"
    ' sizes that the ranks divide. Leave out also="peer": the step is then computed twice by the same ranks.'
)
_ALIGNMENT = 64
"""Bytes at which torch aligns memory: products may depend on where a tensor begins in it."""


class RankExchange:
    """A process group of samerun's own, on the CPU. All ranks make it, and call its methods, alike.

    Raises SamerunError without torch.distributed or with one rank.
    """

    def __init__(self) -> None:
        import torch

        distributed = torch.distributed
        is_there = distributed.is_available() and distributed.is_initialized()
        if not is_there or distributed.get_world_size() < 2:
            raise SamerunError(
                'guard(also="peer"): there is one rank alone.',
                hint="Call init_process_group() first; on one rank, leave out also=.",
            )
        self.rank, self.world_size = distributed.get_rank(), distributed.get_world_size()
        with hide_from_recorder():
            self._group = distributed.new_group(backend="gloo")

    def gather(self, value: Any) -> list[Any]:
        """The value of each rank, on every rank."""
        import torch

        values: list[Any] = [None] * self.world_size
        with hide_from_recorder():
            torch.distributed.all_gather_object(values, value, group=self._group)
        return values

    def pass_on(self, value: Any, rank_distance: int) -> Any:
        """Send a value to the rank `rank_distance` further, and return that of the one `rank_distance` before."""
        import torch

        distributed = torch.distributed
        to, source = (self.rank + rank_distance) % self.world_size, (self.rank - rank_distance) % self.world_size
        buffer = io.BytesIO()
        with hide_from_recorder():
            torch.save(value, buffer)
            sent = torch.frombuffer(bytearray(buffer.getbuffer()), dtype=torch.uint8)
            lengths = self.gather(sent.numel())
            received = torch.empty(lengths[source], dtype=torch.uint8)
            sending: Any = distributed.isend(sent, dst=to, group=self._group)
            distributed.recv(received, src=source, group=self._group)
            sending.wait()
            # From a rank of the same program, which may run what it likes here as it is.
            return torch.load(
                io.BytesIO(received.numpy().tobytes()), map_location=_move_storage_to_own_device, weights_only=False
            )


def choose_rank_distance(hosts: list[str], taken_distances: list[int]) -> int:
    """How far away the rank is that computes the step again: such that most of them lie on another host."""

    def count_other_hosts(distance: int) -> int:
        world = len(hosts)
        return sum(
            hosts[(rank + distance) % world] not in {hosts[(rank + each) % world] for each in taken_distances}
            for rank in range(world)
        )

    return max((each for each in range(1, len(hosts)) if each not in taken_distances), key=count_other_hosts)


def require_equal_parts(shapes_by_rank: list[dict[Any, Any]]) -> None:
    """Raises SamerunError if another rank cannot have the values of one in the place of its own."""
    first = shapes_by_rank[0]
    for rank, shapes in enumerate(shapes_by_rank):
        if shapes == first:
            continue
        key = next(key for key in {**first, **shapes} if shapes.get(key) != first.get(key))
        of_first, of_other = (tuple(held[key]) if held.get(key) is not None else "none" for held in (first, shapes))
        example = f": where rank 0 has {of_first}, rank {rank} has {of_other}" if of_first != of_other else ""
        raise SamerunError(
            f'guard(also="peer"): model and optimizer do not hold parts of the same shapes on all ranks{example}.',
            hint=SHAPES_HINT,
        )


def _move_storage_to_own_device(storage: Any, location: str) -> Any:
    """Where a rank keeps what another one had on a device of the same kind."""
    kind = location.partition(":")[0]
    if kind == "cpu":
        return storage
    import torch

    return storage.to(torch.device(kind, getattr(torch, kind).current_device()))


class PackedTensor(NamedTuple):
    """A tensor as it lies in memory: with its strides, and with where it begins, as products may depend on that."""

    content: Any
    shape: Any
    stride: tuple[int, ...]
    misalignment: int
    requires_grad: bool


def pack_arguments(value: Any) -> Any:
    """A copy of a value with its tensors packed, through lists, tuples and dicts."""
    import torch

    if type(value) is torch.Tensor and value.layout is torch.strided and not value.is_quantized:
        if value.is_conj() or value.is_neg() or value.is_nested:
            return value.detach().clone()
        span = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
        flat = value.detach().as_strided((span if value.numel() else 0,), (1,), value.storage_offset()).clone()
        offset = value.data_ptr() % _ALIGNMENT if value.numel() else 0
        return PackedTensor(flat, value.shape, value.stride(), offset, value.requires_grad)
    return _map_direct_elements(value, pack_arguments)


def unpack_arguments(value: Any) -> Any:
    """The value that was packed, with tensors of its own."""
    import torch

    if isinstance(value, PackedTensor):
        flat = value.content
        offset = value.misalignment // flat.element_size()
        memory = torch.empty(offset + flat.numel(), dtype=flat.dtype, device=flat.device)
        memory[offset:].copy_(flat)
        tensor = memory.as_strided(value.shape, value.stride, offset if flat.numel() else 0)
        return tensor.requires_grad_(value.requires_grad)
    return _map_direct_elements(value, unpack_arguments)


def _map_direct_elements(value: Any, change_element: Any) -> Any:
    if type(value) is dict:
        return {key: change_element(inner) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(change_element(inner) for inner in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(change_element(inner) for inner in value))
    return value
