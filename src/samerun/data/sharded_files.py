"""The files of a sharded checkpoint: a manifest, and one file a rank; written safely, and read as a stranger's.

A folder holds `manifest.pt`, its predecessor, and for both the files of their ranks, whose names follow from numbers:
no name that stands in a file is ever opened. A tensor lies in chunks, each with a digest in the manifest.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from samerun.base.errors import CheckpointError, SamerunError
from samerun.base.files import replace_file_atomically
from samerun.base.text import escape_as_one_line
from samerun.data import checkpoint_file

LAYOUT = 1
MANIFEST = "manifest.pt"
_NAME = re.compile(r"shards-(\d{8})-rank(\d{5})\.pt")
MAX_RANKS = 100_000
MAX_CHUNKS = 100_000
"""Of one tensor."""


class Chunk(NamedTuple):
    """A box of a tensor: which rank's file it lies in, under which number, and its digest."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    rank: int
    number: int
    digest: str


class ShardedTensorEntry(NamedTuple):
    """A tensor of the checkpoint, and the chunks it consists of."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    chunks: list[Chunk]


class Manifest(NamedTuple):
    """What a checkpoint holds. `own`: of each rank, the digests of the values that are its own, by name."""

    generation: int
    world_size: int
    tensors: dict[str, ShardedTensorEntry]
    own: list[dict[str, str]]


class RankFile(NamedTuple):
    """What the file of a rank holds: chunks of tensors by number, and values of its own by name."""

    chunks: dict[int, torch.Tensor]
    own: dict[str, Any]


def rank_file_path(folder: Path, generation: int, rank: int) -> Path:
    return folder / f"shards-{generation:08}-rank{rank:05}.pt"


def next_generation(folder: Path) -> int:
    """A number that no file in the folder has."""
    return 1 + max((int(found[1]) for path in folder.iterdir() if (found := _NAME.fullmatch(path.name))), default=0)


def write_archive(path: Path, content: dict[str, Any], backup_path: Path | None = None) -> None:
    """Write a file as a whole, or raise CheckpointError and leave everything as it was."""
    try:
        replace_file_atomically(
            path, lambda file: checkpoint_file.write_torch_archive(content, file), backup_path=backup_path
        )
    except OSError as error:
        raise CheckpointError(
            f"checkpoint.save_sharded({str(path.parent)!r}): {error.strerror or error}.",
            "Name a folder that exists and has room, on a disk that all ranks share.",
        ) from error
    except SamerunError as error:
        raise CheckpointError(f"checkpoint.save_sharded({str(path.parent)!r}): {error.message}", error.hint) from error


def replace_manifest(folder: Path, manifest: Manifest) -> None:
    """Make the rank files of a generation the checkpoint; then delete those of generations before its predecessor."""
    body = {
        "generation": manifest.generation,
        "world_size": manifest.world_size,
        "own": manifest.own,
        "tensors": {
            name: {"shape": list(entry.shape), "dtype": entry.dtype, "chunks": [list(chunk) for chunk in entry.chunks]}
            for name, entry in manifest.tensors.items()
        },
    }
    body = _tuples_to_lists(body)
    content = {"samerun_sharded": LAYOUT, "body": body, "digest": checkpoint_file.digest_plain_value(body)}
    path = folder / MANIFEST
    write_archive(path, content, checkpoint_file.previous_checkpoint_path(path))
    kept = {manifest.generation}
    try:
        kept.add(read_manifest(checkpoint_file.previous_checkpoint_path(path)).generation)
    except CheckpointError:
        if checkpoint_file.previous_checkpoint_path(path).exists():
            return  # what it needs is not known
    for each in folder.iterdir():
        found = _NAME.fullmatch(each.name)
        if found and int(found[1]) not in kept and int(found[1]) < manifest.generation:
            each.unlink(missing_ok=True)


def read_manifest(path: Path) -> Manifest:
    """Read a manifest. Raises CheckpointError if it is not there, or damaged, or never was one."""
    if not path.exists():
        raise CheckpointError(
            f"checkpoint.load_sharded({str(path.parent)!r}): there is no {path.name}.",
            "Is the path right? The first run has to start without a checkpoint.",
        )
    try:
        content = checkpoint_file.map_untrusted_archive_into_memory(path).content
        if not isinstance(content, dict) or content.get("samerun_sharded") != LAYOUT:
            raise _Damaged("it was not written by samerun.checkpoint.save_sharded, or by a newer one")
        body = content.get("body")
        if checkpoint_file.digest_plain_value(body, max_bytes=checkpoint_file.MIN_BUDGET) != content.get("digest"):
            raise _Damaged("its digest does not match")
        return _parse_checkpoint_manifest(body)
    except (checkpoint_file.UnreadableCheckpoint, _Damaged, CheckpointError, OSError) as error:
        raise make_damage_error(path, error) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise make_damage_error(path, "parts are missing") from error


def map_rank_file_unverified(folder: Path, manifest: Manifest, rank: int) -> RankFile:
    """Map the file of a rank into memory. Digests are not looked at: that is for those who use what is in it."""
    path = rank_file_path(folder, manifest.generation, rank)
    try:
        content = checkpoint_file.map_untrusted_archive_into_memory(path).content
        chunks, own = content["chunks"], content["own"]
        if not all(type(key) is int and isinstance(value, torch.Tensor) for key, value in chunks.items()):
            raise _Damaged("chunks are missing")
        if not all(isinstance(key, str) for key in own):
            raise _Damaged("parts are missing")
        return RankFile(chunks, own)
    except (checkpoint_file.UnreadableCheckpoint, _Damaged, CheckpointError, OSError) as error:
        raise make_damage_error(path, error) from error
    except (KeyError, TypeError, AttributeError) as error:
        raise make_damage_error(path, "parts are missing") from error


def get_verified_chunk(
    folder: Path, manifest: Manifest, file: RankFile, chunk: Chunk, dtype: torch.dtype
) -> torch.Tensor:
    """A chunk whose digest was looked at. Raises CheckpointError."""
    tensor = file.chunks.get(chunk.number)
    if tensor is None or tuple(tensor.shape) != chunk.sizes or tensor.dtype != dtype:
        reason = "a chunk is missing, or has another shape"
    elif _digest_or_empty_if_too_large(tensor) != chunk.digest:
        reason = "the digest of a chunk does not match"
    else:
        return tensor
    raise make_damage_error(rank_file_path(folder, manifest.generation, chunk.rank), reason)


def copy_verified_rank_value(folder: Path, manifest: Manifest, file: RankFile, rank: int, name: str) -> Any:
    """A value of a rank's own, with memory of its own, whose digest was looked at. Raises CheckpointError."""
    value = file.own.get(name)
    if name not in file.own or _digest_or_empty_if_too_large(value) != manifest.own[rank][name]:
        path = rank_file_path(folder, manifest.generation, rank)
        raise make_damage_error(path, f"the digest of {escape_as_one_line(name)} does not match")
    held = {"value": value}
    checkpoint_file.copy_tensors_out_of_mapped_file(held)
    return held["value"]


def make_damage_error(path: Path, reason: object) -> CheckpointError:
    said = reason.message if isinstance(reason, SamerunError) else str(reason)
    previous = checkpoint_file.previous_checkpoint_path(path.parent / MANIFEST)
    hint = "There is no previous checkpoint in the folder."
    if path.name != previous.name and previous.exists():
        hint = f"The one before it: samerun.checkpoint.load_sharded({str(path.parent)!r}, previous=True, ...)."
    return CheckpointError(
        f"checkpoint.load_sharded({str(path.parent)!r}): {path.name} is damaged or not samerun's:"
        f" {escape_as_one_line(said)}.",
        hint,
    )


class _Damaged(Exception):
    """The message says why."""


def _digest_or_empty_if_too_large(value: Any) -> str:
    try:
        return checkpoint_file.digest_plain_value(value, max_bytes=_max_bytes_to_digest(value))
    except CheckpointError:
        return ""


def _max_bytes_to_digest(value: Any) -> int:
    memory = value.untyped_storage().nbytes() if isinstance(value, torch.Tensor) else 0
    return 4 * memory + checkpoint_file.MIN_BUDGET


def _tuples_to_lists(value: Any) -> Any:
    """Tuples as lists, as they are read."""
    if isinstance(value, dict):
        return {key: _tuples_to_lists(inner) for key, inner in value.items()}
    return [_tuples_to_lists(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _parse_checkpoint_manifest(body: Any) -> Manifest:
    """Raises _Damaged, and what looking up raises, for anything that `replace_manifest` would not have written."""
    generation, world = (
        _require_int_from_zero_to(body["generation"], 10**8),
        _require_int_from_zero_to(body["world_size"], MAX_RANKS),
    )
    own = body["own"]
    if not isinstance(own, list) or len(own) != world or not all(map(_are_digests, own)):
        raise _Damaged("values of ranks are missing")
    tensors = {}
    for name, entry in body["tensors"].items():
        if not isinstance(name, str) or not isinstance(entry["dtype"], torch.dtype):
            raise _Damaged("a tensor has no name or type")
        shape = _require_list_of_sizes(entry["shape"])
        chunks = [_parse_chunk(chunk, shape, world) for chunk in entry["chunks"]]
        _require_chunks_cover_tensor_once(name, shape, chunks)
        tensors[name] = ShardedTensorEntry(shape, entry["dtype"], chunks)
    return Manifest(generation, world, tensors, own)


def _are_digests(values: Any) -> bool:
    return isinstance(values, Mapping) and all(isinstance(each, str) for pair in values.items() for each in pair)


def _parse_chunk(chunk: Any, shape: tuple[int, ...], world: int) -> Chunk:
    offsets, sizes, rank, number, digest = chunk
    parsed = Chunk(
        _require_list_of_sizes(offsets), _require_list_of_sizes(sizes), _require_int_from_zero_to(rank, world),
        _require_int_from_zero_to(number, 1 << 40), str(digest),
    )  # fmt: skip
    ends = [offset + size for offset, size in zip(parsed.offsets, parsed.sizes, strict=True)]
    if any(end > whole for end, whole in zip(ends, shape, strict=True)) or rank == world:
        raise _Damaged("a chunk lies outside of its tensor")
    return parsed


def _require_chunks_cover_tensor_once(name: str, shape: tuple[int, ...], chunks: list[Chunk]) -> None:
    """Raises _Damaged unless each element of a tensor lies in one chunk."""
    held = sorted(chunk for chunk in chunks if 0 not in chunk.sizes)
    if len(chunks) > MAX_CHUNKS or sum(torch.Size(chunk.sizes).numel() for chunk in held) != torch.Size(shape).numel():
        raise _Damaged(f"{name[:100]} is not whole")
    for at, one in enumerate(held):
        for other in itertools.islice(held, at + 1, None):
            if not shape or other.offsets[0] >= one.offsets[0] + one.sizes[0]:
                break
            if _overlap(one, other):
                raise _Damaged(f"chunks of {name[:100]} overlap")


def _overlap(one: Chunk, other: Chunk) -> bool:
    boxes = zip(one.offsets, one.sizes, other.offsets, other.sizes, strict=True)
    return all(begin < other_begin + other_size and other_begin < begin + size
               for begin, size, other_begin, other_size in boxes)  # fmt: skip


def _require_list_of_sizes(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list) or len(values) > 64:
        raise _Damaged("a shape is none")
    return tuple(_require_int_from_zero_to(value, 1 << 48) for value in values)


def _require_int_from_zero_to(value: Any, largest: int) -> int:
    if type(value) is not int or not 0 <= value <= largest:
        raise _Damaged("a number is out of range")
    return value
