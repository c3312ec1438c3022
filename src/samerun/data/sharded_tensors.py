"""The tensors of a model and its optimizers: their names, and which part of each this rank holds.

Both come from torch.distributed.checkpoint.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from samerun.base.errors import CheckpointError
from samerun.data import sharded_files
from samerun.data.sharded_files import Manifest, RankFile

SHARDED_PARTS = ("model", "optimizer")


def list_optimizers(optimizer: Any) -> list[Any]:
    return list(optimizer) if isinstance(optimizer, (list, tuple)) else [] if optimizer is None else [optimizer]


class ModelState(NamedTuple):
    """Of a model and its optimizers: tensors, and all other values, by name."""

    tensors: dict[str, Any]
    plain: dict[str, Any]


def split_tensors_and_plain(parts: Mapping[str, Any]) -> ModelState:
    """The state of `model` and `optimizer`. Raises CheckpointError if there is no model."""
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict

    model, optimizers = parts.get("model"), list_optimizers(parts.get("optimizer"))
    if not isinstance(model, torch.nn.Module):
        raise CheckpointError(
            f"A sharded checkpoint needs model=; it is a {type(model).__name__}.",
            "Pass the module that fully_shard or DistributedDataParallel was called with.",
        )
    states: dict[str, Any] = {"model": get_model_state_dict(model)}
    if optimizers:
        states["optimizer"] = get_optimizer_state_dict(model, optimizers)
    tensors: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    for path, value in _iterate_leaves("", states):
        (tensors if isinstance(value, torch.Tensor) else plain)[path] = value
    return ModelState(tensors, plain)


def load_model_and_optimizer_state(parts: Mapping[str, Any], loaded: ModelState) -> None:
    """Load what has the names of `split_tensors_and_plain`."""
    from torch.distributed.checkpoint import state_dict as torch_state

    model, optimizers = parts["model"], list_optimizers(parts.get("optimizer"))
    values = {**loaded.tensors, **loaded.plain}
    state = _replace_leaves("model", torch_state.get_model_state_dict(model), values)
    torch_state.set_model_state_dict(model, state)
    if optimizers:
        optimizer_state = _replace_leaves("optimizer", torch_state.get_optimizer_state_dict(model, optimizers), values)
        torch_state.set_optimizer_state_dict(model, optimizers, optimizer_state)


def _iterate_leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _iterate_leaves(f"{path}.{key}" if path else str(key), inner)
    elif isinstance(value, list) and value and any(isinstance(inner, (dict, torch.Tensor)) for inner in value):
        for at, inner in enumerate(value):
            yield from _iterate_leaves(f"{path}.{at}", inner)
    else:
        yield path, value


def _replace_leaves(path: str, value: Any, leaves_by_path: Mapping[str, Any]) -> Any:
    if isinstance(value, dict) and value:
        return {key: _replace_leaves(f"{path}.{key}", inner, leaves_by_path) for key, inner in value.items()}
    if isinstance(value, list) and value and any(isinstance(inner, (dict, torch.Tensor)) for inner in value):
        return [_replace_leaves(f"{path}.{at}", inner, leaves_by_path) for at, inner in enumerate(value)]
    return leaves_by_path[path]


def is_sharded(value: Any) -> bool:
    return hasattr(value, "to_local")


def clone_detached_tensors(value: Any) -> Any:
    """A copy of tensors, on their devices and in their layout; through dicts, lists and tuples."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        copied = copy.copy(value)  # also the versions that torch keeps beside a module's state
        for key, inner in value.items():
            copied[key] = clone_detached_tensors(inner)
        return copied
    return type(value)(map(clone_detached_tensors, value)) if type(value) in (list, tuple) else value


def iterate_local_chunks(
    tensors: dict[str, Any],
) -> Iterator[tuple[str, tuple[tuple[int, ...], torch.dtype], tuple[int, ...], torch.Tensor]]:
    """Name, shape and type of the whole, offsets, and this rank's part of each tensor; what all have, of rank 0."""
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

    planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    planner.set_up_planner(tensors, is_coordinator=dist.get_rank() == 0)
    for item in planner.create_local_plan().items:
        value = planner.resolve_data(item)
        assert isinstance(value, torch.Tensor) and item.tensor_data is not None
        entry = tuple(item.tensor_data.size), value.dtype
        local = value.detach().cpu().clone(memory_format=torch.contiguous_format)  # not the memory of others with it
        yield item.index.fqn, entry, tuple(item.tensor_data.chunk.offsets), local


def fill_from_chunks(
    folder: Path, manifest: Manifest, tensors: dict[str, Any], open_rank_file: Callable[[int], RankFile]
) -> None:
    """Fill this rank's part of each tensor from the chunks that hold something of it."""
    from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
    from torch.distributed.checkpoint.metadata import (
        ChunkStorageMetadata,
        Metadata,
        TensorProperties,
        TensorStorageMetadata,
    )

    chunks = {(name, chunk.offsets): chunk for name in tensors for chunk in manifest.tensors[name].chunks}
    metadata = Metadata(
        {
            name: TensorStorageMetadata(
                TensorProperties(dtype=manifest.tensors[name].dtype),
                torch.Size(manifest.tensors[name].shape),
                [ChunkStorageMetadata(torch.Size(each.offsets), torch.Size(each.sizes))
                 for each in manifest.tensors[name].chunks],
            )
            for name in tensors
        }
    )  # fmt: skip
    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    planner.set_up_planner(tensors, metadata)
    checked: dict[tuple[str, tuple[int, ...]], torch.Tensor] = {}
    for item in planner.create_local_plan().items:
        index = item.storage_index
        key = index.fqn, tuple(index.offset or ())
        if key not in checked:
            chunk = chunks[key]
            dtype = manifest.tensors[index.fqn].dtype
            checked[key] = sharded_files.get_verified_chunk(folder, manifest, open_rank_file(chunk.rank), chunk, dtype)
        part = checked[key]
        for dim, (offset, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
            part = part.narrow(dim, offset, length)
        planner.resolve_tensor(item).detach().copy_(part)
