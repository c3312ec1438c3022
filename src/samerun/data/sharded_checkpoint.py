"""Save and load a training whose parameters are spread over ranks, on as many ranks or on others.

Names, and which part of a tensor a rank holds, come from torch.distributed.checkpoint; its files do not, since it reads
them with pickle.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch.distributed as dist

from samerun.base.errors import CheckpointError, SamerunError, UnfitStateError
from samerun.control.random_source import derive_seed
from samerun.control.rng.seeding import available_random_sources, seed_random_sources
from samerun.control.rng.state import VERSION as RNG_VERSION
from samerun.control.rng.state import get_rng_states_of, load_state_dict, restore_snapshot, state_dict, take_snapshot
from samerun.control.streams.process_seed import find_acting_rank
from samerun.data import checkpoint_file, sharded_files
from samerun.data.sharded_files import Chunk, Manifest, RankFile, ShardedTensorEntry
from samerun.data.sharded_tensors import (
    SHARDED_PARTS,
    ModelState,
    clone_detached_tensors,
    fill_from_chunks,
    is_sharded,
    iterate_local_chunks,
    list_optimizers,
    load_model_and_optimizer_state,
    split_tensors_and_plain,
)
from samerun.data.training_checkpoint import collect_state_dicts_or_raise, load_state_into


class SavedState(NamedTuple):
    """What one rank writes: tensors by name, of which it may hold a part, and values of its own."""

    tensors: dict[str, Any]
    own: dict[str, Any]


class PendingSave:
    """A checkpoint that is being written. All ranks call `wait`, before the process group is destroyed."""

    def __init__(self, write: Callable[[], None]) -> None:
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(write,), name="samerun checkpoint")
        self._thread.start()

    def _run(self, write: Callable[[], None]) -> None:
        try:
            write()
        except BaseException as error:
            self._error = error

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Return when the checkpoint is there. Raises CheckpointError if it could not be written."""
        self._thread.join()
        if self._error is not None:
            raise self._error


_pending: PendingSave | None = None


def _wait_for_pending_save() -> None:
    """Two saves at once would mix up their collectives. Raises CheckpointError if the one under way fails."""
    global _pending
    pending, _pending = _pending, None
    if pending is not None:
        pending.wait()


def save_sharded(
    folder: str | os.PathLike[str], parts: Mapping[str, Any], extra: Any, wait: bool
) -> PendingSave | None:
    """See `samerun.checkpoint.save_sharded`."""
    global _pending
    target = Path(folder)
    _require_process_group("save_sharded")
    _wait_for_pending_save()
    group = _get_or_make_group()
    state = _call_on_ranks(group, lambda: _collect_rank_state(parts, extra))
    generation = _call_on_ranks(group, lambda: _prepare_folder(target) if dist.get_rank() == 0 else 0, from_rank_0=True)
    if wait:
        _write_files(target, generation, state, group)
        return None
    staged = SavedState({name: clone_detached_tensors(value) for name, value in state.tensors.items()}, state.own)
    _pending = PendingSave(lambda: _write_files(target, generation, staged, group))
    return _pending


def _collect_rank_state(parts: Mapping[str, Any], extra: Any) -> SavedState:
    """The state of a rank. Tensors that each rank has for itself (statistics of BatchNorm) are values of its own."""
    tensors, plain = split_tensors_and_plain(parts)
    rest = {name: collect_state_dicts_or_raise(part, name) for name, part in parts.items() if name not in SHARDED_PARTS}
    own: dict[str, Any] = {"plain": plain, "extra": extra, **rest, **_split_rng_state_by_generator(state_dict())}
    for name, value in own.items():
        checkpoint_file.require_loadable_with_weights_only(value, name)
    own = {name: clone_detached_tensors(value) for name, value in own.items()}
    return SavedState(tensors, own)


def _write_files(folder: Path, generation: int, state: SavedState, group: Any) -> None:
    """Write this rank's file, and on rank 0, when all have theirs, the manifest."""
    tensors, own = dict(state.tensors), dict(state.own)
    whole = {
        name: checkpoint_file.digest_plain_value(value) for name, value in tensors.items() if not is_sharded(value)
    }
    for name in _find_unequal(_all_gather(group, whole)):
        own[f"tensor {name}"] = tensors.pop(name, None)

    def write_own_file() -> dict[str, Any]:
        chunks, table = {}, []
        for number, (name, entry, offsets, chunk) in enumerate(iterate_local_chunks(tensors)):
            chunks[number] = chunk
            digest = checkpoint_file.digest_plain_value(chunk)
            table.append((name, entry, Chunk(offsets, tuple(chunk.shape), dist.get_rank(), number, digest)))
        digests = {name: checkpoint_file.digest_plain_value(value) for name, value in own.items()}
        path = sharded_files.rank_file_path(folder, generation, dist.get_rank())
        sharded_files.write_archive(path, {"chunks": chunks, "own": own})
        return {"table": table, "own": digests}

    written = _all_gather(group, _call_on_ranks(group, write_own_file))
    manifest = _make_manifest(generation, written)
    _call_on_ranks(group, lambda: sharded_files.replace_manifest(folder, manifest) if dist.get_rank() == 0 else None)


def _make_manifest(generation: int, written_by_rank: list[dict[str, Any]]) -> Manifest:
    tensors: dict[str, ShardedTensorEntry] = {}
    for of_rank in written_by_rank:
        for name, (shape, dtype), chunk in of_rank["table"]:
            entry = tensors.setdefault(name, ShardedTensorEntry(shape, dtype, []))
            if all(chunk[:2] != other[:2] for other in entry.chunks):  # what several ranks hold is there once
                entry.chunks.append(chunk)
    return Manifest(generation, len(written_by_rank), tensors, [of_rank["own"] for of_rank in written_by_rank])


def load_sharded(
    folder: str | os.PathLike[str], parts: Mapping[str, Any], rng: bool | Literal["reseed"], previous: bool
) -> Any:
    """See `samerun.checkpoint.load_sharded`."""
    _require_process_group("load_sharded")
    _wait_for_pending_save()
    target = Path(folder)
    group = _get_or_make_group()
    optimizers = list_optimizers(parts.get("optimizer"))
    were_empty = [not optimizer.state for optimizer in optimizers]
    try:
        loaded = _call_on_ranks(group, lambda: _read(target, parts, rng, previous))
    except BaseException:
        for optimizer, was_empty in zip(optimizers, were_empty, strict=True):
            if was_empty:
                optimizer.state.clear()  # torch makes it, to know what is to be loaded
        raise
    # The loader first: whether it takes its state, only it can say, and until then nothing has changed.
    for name in sorted(parts, key=lambda name: name != "loader"):
        if name not in SHARDED_PARTS:
            load_state_into(parts[name], loaded.own[name], name, target)
    load_model_and_optimizer_state(parts, ModelState(loaded.tensors, loaded.own["plain"]))
    if rng:
        _set_generators(loaded.own, target)
    return loaded.own["extra"]


def _read(folder: Path, parts: Mapping[str, Any], rng: bool | Literal["reseed"], previous: bool) -> SavedState:
    """What is to be loaded on this rank, whole and checked. Changes nothing but the memory of an empty optimizer."""
    path = folder / sharded_files.MANIFEST
    manifest = sharded_files.read_manifest(checkpoint_file.previous_checkpoint_path(path) if previous else path)
    files: dict[int, RankFile] = {}

    def open_file(rank: int) -> RankFile:
        if rank not in files:
            files[rank] = sharded_files.map_rank_file_unverified(folder, manifest, rank)
        return files[rank]

    tensors, plain = split_tensors_and_plain(parts)
    own_tensors = {name for names in manifest.own for name in names if name.startswith("tensor ")}
    _require_tensors_fit(folder, manifest, tensors, own_tensors)
    wanted = ["extra", "plain", *(name for name in parts if name not in SHARDED_PARTS)]
    wanted += [f"tensor {name}" for name in tensors if f"tensor {name}" in own_tensors]
    if rng:
        wanted += [name for name in manifest.own[0] if name.startswith(_RNG)]
    rank, is_same_layout = dist.get_rank(), manifest.world_size == dist.get_world_size()
    source = rank if is_same_layout else 0
    own: dict[str, Any] = {}
    unequal = [] if is_same_layout else [name for name in _find_unshareable_names(manifest) if name in wanted]
    if rng == "reseed":
        unequal = [name for name in unequal if not name.startswith(_RNG) or name in _NEVER_ANEW]
    _require_layout_can_change(folder, manifest, unequal)
    for name in wanted:
        if name not in manifest.own[source]:
            raise CheckpointError(
                f"checkpoint.load_sharded({str(folder)!r}): it holds no {name}.",
                f"Save it too: samerun.checkpoint.save_sharded(folder, {name}={name}, ...).",
            )
        own[name] = sharded_files.copy_verified_rank_value(folder, manifest, open_file(source), source, name)
    whole = {name: value for name, value in tensors.items() if f"tensor {name}" not in own_tensors}
    copies = {name: clone_detached_tensors(value) for name, value in whole.items()}
    fill_from_chunks(folder, manifest, copies, open_file)
    copies.update({name: own.pop(f"tensor {name}") for name in tensors if f"tensor {name}" in own})
    if set(own["plain"]) != set(plain):
        raise CheckpointError(
            f"checkpoint.load_sharded({str(folder)!r}): the optimizer has other groups of parameters.",
            "Make it as it was made in the run that saved it.",
        )
    if rng == "reseed" and not is_same_layout:
        _mark_unequal_generators_for_reseed(own, manifest)
    if rng:
        _require_loadable_generators(own, folder)
    return SavedState(copies, own)


def _require_tensors_fit(folder: Path, manifest: Manifest, tensors: dict[str, Any], own_tensors: set[str]) -> None:
    """Raises CheckpointError for the first tensor that is missing, or has another shape or type."""
    named = f"checkpoint.load_sharded({str(folder)!r})"
    hint = "Make model and optimizer as they were made in the run that saved it."
    for name, value in tensors.items():
        entry = manifest.tensors.get(name)
        if entry is None:
            if f"tensor {name}" not in own_tensors:
                raise CheckpointError(f"{named}: it holds no {name}.", hint)
        elif entry.shape != tuple(value.shape) or entry.dtype != value.dtype:
            there, here = (entry.shape, entry.dtype), (tuple(value.shape), value.dtype)
            raise CheckpointError(f"{named}: {name} is {there} there, and {here} here.", hint)
    kinds = {name.split(".")[0] for name in tensors}
    more = [name for name in manifest.tensors if name not in tensors and name.split(".")[0] in kinds]
    if more:
        raise CheckpointError(f"{named}: it holds {more[0][:200]!r}, which is not here.", hint)


def _require_layout_can_change(folder: Path, manifest: Manifest, unshareable_names: list[str]) -> None:
    """Raises CheckpointError if each rank had something of its own that ranks of another number cannot have."""
    if not unshareable_names:
        return
    generators = [name.removeprefix(_RNG) for name in unshareable_names if name.startswith(_RNG)]
    others = [name.removeprefix("tensor ") for name in unshareable_names if not name.startswith(_RNG)]
    saved = manifest.world_size
    each, hint = "1 rank, which" if saved == 1 else f"{saved} ranks, of which each", f"Go on with as many ({saved})."
    if not others:
        hint += (
            ' Or pass rng="reseed", to start these generators anew, each rank another one, or rng=False: the run then'
            " draws other numbers than it would have."
        )
    what = ", ".join([*others, *(f"state of the generator {name}" for name in generators)][:5])
    raise CheckpointError(
        f"checkpoint.load_sharded({str(folder)!r}): it was saved on {each} had its own {what}. They cannot be shared"
        f" out to {dist.get_world_size()} ranks.",
        hint,
    )


# --- generators ------------------------------------------------------------------------------------------------------

_RNG = "rng "
"""What the names of generators begin with, among the values of a rank's own."""
_DISTINCT = f"{_RNG}streams of each rank"
_ANEW, _PLACE = "generators to be seeded", "where the checkpoint was taken"
"""Among the values to be loaded; not in the file."""
_NEVER_ANEW = (f"{_RNG}seed", f"{_RNG}of streams")


def _mark_unequal_generators_for_reseed(own: dict[str, Any], manifest: Manifest) -> None:
    """Have the generators that each rank had for itself seeded; those streams of each rank start again."""
    unequal = [name for name in _find_unshareable_names(manifest) if name.startswith(_RNG) and name in own]
    for name in unequal:
        del own[name]
    own[_ANEW] = [name.removeprefix(f"{_RNG}of ") for name in unequal if name != _DISTINCT]
    own[_PLACE] = f"{manifest.generation} {checkpoint_file.digest_plain_value(manifest.own)}"


def _find_unshareable_names(manifest: Manifest) -> list[str]:
    """What ranks of another number cannot have: values that ranks had differently, and generators of a single rank."""
    if manifest.world_size > 1:
        return _find_unequal(manifest.own)
    unused = {_DISTINCT: checkpoint_file.digest_plain_value([])}
    own = [name for name, digest in manifest.own[0].items() if unused.get(name) != digest]
    return [name for name in own if name.startswith(_RNG) and name not in _NEVER_ANEW]


def _split_rng_state_by_generator(state: dict[str, Any]) -> dict[str, Any]:
    """The state of each generator as a value of its own, so that those are found that all ranks have alike."""
    states = dict(state["rng"])
    streams = states["streams"]
    by_kind: dict[str, list[Any]] = {"same": [], "distinct": []}
    for stream in streams["streams"]:
        by_kind[stream["rank"]].append(stream)
    states["streams"] = {**streams, "streams": by_kind["same"]}
    found = {f"{_RNG}of {name}": value for name, value in states.items()}
    return {f"{_RNG}seed": state["seed"], **found, _DISTINCT: by_kind["distinct"]}


def _rebuild_rng_state_from_split(own: Mapping[str, Any]) -> dict[str, Any]:
    begin = f"{_RNG}of "
    states = {name.removeprefix(begin): value for name, value in own.items() if name.startswith(begin)}
    if "streams" in states:
        streams = states["streams"]
        states["streams"] = {**streams, "streams": [*streams["streams"], *own.get(_DISTINCT, [])]}
    rank = find_acting_rank() or 0
    return {"samerun_state": RNG_VERSION, "seed": own.get(f"{_RNG}seed"), "rank": rank, "rng": states}


def _require_loadable_generators(own: Mapping[str, Any], folder: Path) -> None:
    """Raises UnfitStateError if the generators reject their states, before anything is changed."""
    before = take_snapshot()
    try:
        _set_generators(own, folder)
    finally:
        restore_snapshot(before)


def _set_generators(own: Mapping[str, Any], folder: Path) -> None:
    """Load the states. Generators that were started anew on purpose are seeded for this rank."""
    try:
        state = _rebuild_rng_state_from_split(own)
        anew = own.get(_ANEW, [])
        sources = [source for source in available_random_sources() if source.name in anew]
        if anew:
            seed = derive_seed(
                int(state["seed"] or 0), f"{own[_PLACE]} rank {state['rank']} of {dist.get_world_size()}"
            )
            seed_random_sources(seed, sources)
            state["rng"].update(get_rng_states_of(sources))
        load_state_dict(state)
    except Exception as error:
        reason = error.message if isinstance(error, SamerunError) else str(error)
        hint = error.hint if isinstance(error, SamerunError) else None
        raise UnfitStateError(f"checkpoint.load_sharded({str(folder)!r}): rng: {reason}", hint) from error


# --- ranks -----------------------------------------------------------------------------------------------------------


def _require_process_group(method: str) -> None:
    if not dist.is_available() or not dist.is_initialized():
        raise CheckpointError(
            f"checkpoint.{method}(): torch.distributed is not initialised.",
            "Call torch.distributed.init_process_group() first; without ranks, use checkpoint.save and load.",
        )


_group: tuple[Any, Any] | None = None
"""The program's process group, and that of checkpoints made beside it."""


def _get_or_make_group() -> Any:
    """A process group on the CPU, which the program's own collectives do not meet; also in another thread."""
    global _group
    if _group is None or _group[0] is not dist.group.WORLD:
        _group = dist.group.WORLD, dist.new_group(backend="gloo")
    return _group[1]


def _all_gather(group: Any, value: Any) -> list[Any]:
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value, group=group)
    return values


def _call_on_ranks(group: Any, call: Callable[[], Any], from_rank_0: bool = False) -> Any:
    """Call on every rank, and raise on all if it failed on one. `from_rank_0`: return what rank 0 has."""
    result, failed = None, None
    try:
        result = call()
    except Exception as error:
        failed = error
    told = None if failed is None else (getattr(failed, "message", repr(failed)), getattr(failed, "hint", None))
    ranks = _all_gather(group, (told, result if from_rank_0 else None))
    if failed is not None:
        raise failed
    for rank, (error_of_rank, _) in enumerate(ranks):
        if error_of_rank is not None:
            raise CheckpointError(f"Rank {rank}: {error_of_rank[0]}", error_of_rank[1])
    return ranks[0][1] if from_rank_0 else result


def _prepare_folder(folder: Path) -> int:
    """The number of the new checkpoint, in a folder that is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return sharded_files.next_generation(folder)
    except OSError as error:
        raise CheckpointError(
            f"checkpoint.save_sharded({str(folder)!r}): {error.strerror or error}.",
            "Name a folder, on a disk that all ranks share.",
        ) from error


def _find_unequal(values: list[dict[str, str]]) -> list[str]:
    """The names under which not all ranks have the same digest."""
    names = dict.fromkeys(name for each in values for name in each)
    return [name for name in names if len({each.get(name) for each in values}) > 1]
