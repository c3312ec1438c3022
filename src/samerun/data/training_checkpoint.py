"""Save and load a whole training: objects with a `state_dict`, and all random generators."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch

from samerun.base.errors import CheckpointError, SamerunError, UnfitStateError
from samerun.base.files import replace_file_atomically
from samerun.base.text import escape_as_one_line
from samerun.control.ddp import warn_if_ddp_buckets_change
from samerun.control.random_source import derive_seed
from samerun.control.rng.seeding import available_random_sources, seed_random_sources
from samerun.control.rng.state import load_state_dict, restore_snapshot, state_dict, take_snapshot
from samerun.control.streams.process_seed import find_acting_rank
from samerun.data import checkpoint_file

VERSION = 1
"""Version of the file's layout. A newer layout gets a new number, and older ones stay readable."""


def save_checkpoint(path: str | os.PathLike[str], parts: Mapping[str, Any], extra: Any) -> None:
    """See `samerun.checkpoint.save`."""
    target = Path(path)
    rng = _gather_from_ranks(state_dict())
    _run_on_rank_zero(lambda: _write_checkpoint(target, parts, extra, rng))


def _write_checkpoint(target: Path, parts: Mapping[str, Any], extra: Any, rng_of_ranks: list[Any]) -> None:
    states = {name: collect_state_dicts_or_raise(part, name) for name, part in parts.items()}
    saved = {**states, "extra": extra, "rng": rng_of_ranks}
    for name, value in saved.items():
        checkpoint_file.require_loadable_with_weights_only(value, name)
    digests = {name: checkpoint_file.digest_plain_value(value) for name, value in saved.items()}
    content = {"samerun_checkpoint": VERSION, "parts": saved, "digests": digests, "torch": str(torch.__version__)}
    try:
        previous = checkpoint_file.previous_checkpoint_path(target)
        replace_file_atomically(
            target, lambda file: checkpoint_file.write_torch_archive(content, file), backup_path=previous
        )
    except OSError as error:
        raise CheckpointError(
            f"checkpoint.save({str(target)!r}): {error.strerror or error}.",
            "Name a file in a folder that exists and has room. The checkpoint before this one is untouched.",
        ) from error
    except SamerunError as error:
        raise CheckpointError(f"checkpoint.save({str(target)!r}): {error.message}", error.hint) from error


def load_checkpoint(path: str | os.PathLike[str], parts: Mapping[str, Any], rng: bool | Literal["reseed"]) -> Any:
    """See `samerun.checkpoint.load`."""
    target = Path(path)
    saved = read_checkpoint_parts(target)
    absent = [name for name in parts if name not in saved]
    if absent:
        there = ", ".join(name for name in saved if name not in ("rng", "extra")) or "no parts"
        raise CheckpointError(
            f"checkpoint.load({str(target)!r}): it holds no {' and no '.join(absent)}; it holds {there}.",
            f"Save it too: samerun.checkpoint.save(path, {', '.join(f'{name}={name}' for name in absent)}, ...).",
        )
    require_states_fit(parts, saved, str(target))
    if rng:
        _require_loadable_generator_states(saved["rng"], target, rng == "reseed")
    checkpoint_file.copy_tensors_out_of_mapped_file(saved)
    # The loader first: whether it takes its state, only it can say, and until then nothing has changed.
    for name in sorted(parts, key=lambda name: name != "loader"):
        load_state_into(parts[name], saved[name], name, target)
    warn_if_ddp_buckets_change(parts.get("model"))
    if rng:
        _restore_or_seed_generators_of_rank(saved["rng"], target)
    return saved["extra"]


def read_checkpoint_parts(target: Path) -> dict[str, Any]:
    """Return the parts of a checkpoint, after checking their digests. Raises CheckpointError if missing or damaged."""
    if not target.exists():
        hint = (
            _previous_checkpoint_hint_or_empty(target)
            or "Is the path right? The first run has to start without a checkpoint."
        )
        raise CheckpointError(f"checkpoint.load({str(target)!r}): there is no such file.", hint)
    content: Any = None
    try:
        content, size = checkpoint_file.map_untrusted_archive_into_memory(target)
        reason = _describe_damage_or_empty(content, 4 * size + checkpoint_file.MIN_BUDGET)
    except (checkpoint_file.UnreadableCheckpoint, CheckpointError, OSError) as error:
        reason = error.message if isinstance(error, CheckpointError) else str(error)
    if reason:
        raise CheckpointError(
            f"checkpoint.load({str(target)!r}): the file is damaged or not samerun's: {escape_as_one_line(reason)}.",
            _previous_checkpoint_hint_or_empty(target) or "There is no previous checkpoint beside it.",
        )
    saved: dict[str, Any] = content["parts"]
    return saved


def _describe_damage_or_empty(content: Any, max_bytes: int) -> str:
    """Return what is wrong with the content of a file; "" if it is an intact checkpoint."""
    if not isinstance(content, dict) or "samerun_checkpoint" not in content:
        return "it was not written by samerun.checkpoint.save"
    version = content["samerun_checkpoint"]
    if type(version) is not int or version != VERSION:
        return f"it has layout {escape_as_one_line(version, 40)}, and this samerun knows {VERSION}"
    saved, digests = content.get("parts"), content.get("digests")
    if not isinstance(saved, dict) or not isinstance(digests, dict) or saved.keys() != digests.keys():
        return "parts are missing"
    if not all(isinstance(name, str) for name in saved) or not {"extra", "rng"} <= saved.keys():
        return "parts are missing"
    if not all(isinstance(digest, str) for digest in digests.values()):
        return "digests are missing"
    changed = [
        name for name, value in saved.items() if not _matches_current_or_legacy_digest(value, digests[name], max_bytes)
    ]
    return f"the digest of {', '.join(changed)} does not match" if changed else ""


def _matches_current_or_legacy_digest(value: Any, expected_digest: str, max_bytes: int) -> bool:
    """Return whether the digest matches; also that which earlier versions computed for expanded tensors."""
    return any(
        checkpoint_file.digest_plain_value(value, max_bytes=max_bytes, ignore_expansion=dense) == expected_digest
        for dense in (False, True)
    )


def _previous_checkpoint_hint_or_empty(target: Path) -> str:
    """Return a hint that names the previous checkpoint if it is intact; "" if there is none."""
    previous = checkpoint_file.previous_checkpoint_path(target)
    if target.name.endswith(".previous") or not previous.exists():
        return ""
    try:
        read_checkpoint_parts(previous)
    except CheckpointError:
        return f"The previous one, {previous}, is damaged too."
    return f"The previous one is intact: samerun.checkpoint.load({str(previous)!r}, ...)."


def collect_state_dicts_or_raise(part: Any, name: str) -> Any:
    """Return the state of a part, or those of a dict or list of parts."""
    if hasattr(part, "state_dict"):
        return part.state_dict()
    if isinstance(part, Mapping):
        return {str(key): collect_state_dicts_or_raise(inner, f"{name}[{key!r}]") for key, inner in part.items()}
    if isinstance(part, (list, tuple)):
        return [collect_state_dicts_or_raise(inner, f"{name}[{at}]") for at, inner in enumerate(part)]
    raise CheckpointError(
        f"checkpoint.save(): {name} is a {type(part).__name__}, which has no state_dict().",
        "Pass the object itself, or put plain values into extra=.",
    )


def load_state_into(part: Any, state: Any, name: str, checkpoint_path: Path) -> None:
    """Load the state of a part, or of each part in a dict or list. Raises UnfitStateError."""
    if hasattr(part, "load_state_dict"):
        try:
            part.load_state_dict(state)
        except Exception as error:
            reason = error.message if isinstance(error, SamerunError) else str(error)
            hint = error.hint if isinstance(error, SamerunError) else "Make it as it was made in the run that saved it."
            message = f"{name} ({type(part).__name__}) did not take its state: {reason}"
            raise UnfitStateError(f"checkpoint.load({str(checkpoint_path)!r}): {message}", hint) from error
        return
    for key in list(part) if isinstance(part, Mapping) else range(len(part)):
        load_state_into(
            part[key], state[str(key) if isinstance(state, Mapping) else key], f"{name}[{key!r}]", checkpoint_path
        )


def _require_loadable_generator_states(states_by_rank: Any, target: Path, reseed: bool) -> None:
    """Raise CheckpointError if the generators reject their states, before anything is changed.

    The states are really loaded, and the present ones restored: no check from outside is as strict as the libraries.
    """
    if not isinstance(states_by_rank, list) or not states_by_rank:
        raise CheckpointError(
            f"checkpoint.load({str(target)!r}): it holds no states of random generators.", "Load it with rng=False."
        )
    saved, here = len(states_by_rank), max(_get_world_size(), (find_acting_rank() or 0) + 1)
    if here > saved and not reseed and not _several_ranks_have_equal_states(states_by_rank):
        raise CheckpointError(  # on all ranks: those with a state of their own would wait for the others
            f"checkpoint.load({str(target)!r}): it holds the random generators of {saved} rank{'s' * (saved > 1)}, and"
            f" here are {here}. Those of one rank cannot be given to others: they would draw alike.",
            f'Go on with {saved}. Or pass rng="reseed", which gives each new rank generators of its own, or rng=False.',
        )
    before = take_snapshot()
    try:
        _restore_or_seed_generators_of_rank(states_by_rank, target)
    finally:
        restore_snapshot(before)


def _several_ranks_have_equal_states(states_by_rank: list[Any]) -> bool:
    """Whether ranks, of which there were several, had every generator at the same position."""
    own = [{**state, "rank": 0} if isinstance(state, dict) else state for state in states_by_rank]
    return len(own) > 1 and len({checkpoint_file.digest_plain_value(state) for state in own}) == 1


def _restore_or_seed_generators_of_rank(states_by_rank: list[Any], target: Path) -> None:
    """Restore this rank's generators. A rank that the saved run lacked takes over what all had alike, named streams
    that are the same on all ranks included; if they differed, it gets generators of its own."""
    rank = find_acting_rank() or 0
    try:
        if rank < len(states_by_rank):
            load_state_dict(states_by_rank[rank])
            return
        load_state_dict(states_by_rank[0], strict=False)
        if not _several_ranks_have_equal_states(
            states_by_rank
        ):  # of this checkpoint and rank: another one gives other numbers
            seed = derive_seed(int(checkpoint_file.digest_plain_value(states_by_rank)[:16], 16), f"rank {rank}")
            seed_random_sources(seed, [source for source in available_random_sources() if source.name != "streams"])
    except Exception as error:
        reason = error.message if isinstance(error, SamerunError) else str(error)
        hint = error.hint if isinstance(error, SamerunError) else None
        raise UnfitStateError(f"checkpoint.load({str(target)!r}): rng: {reason}", hint) from error


# --- ranks ---------------------------------------------------------------------------------------


def _get_world_size() -> int:
    distributed = torch.distributed
    here = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if here else 1


def _gather_from_ranks(state: Any) -> list[Any]:
    """Return the states of all ranks, in their order, on every rank."""
    if _get_world_size() == 1:
        return [state]
    states: list[Any] = [None] * _get_world_size()
    torch.distributed.all_gather_object(states, state)
    return states


def _run_on_rank_zero(write: Callable[[], None]) -> None:
    """Call `write` on rank 0 only; the other ranks wait, and raise too if it failed."""
    if _get_world_size() == 1:
        write()
        return
    failure: list[Any] = [None]
    if torch.distributed.get_rank() == 0:
        try:
            write()
        except CheckpointError as error:
            failure = [(error.message, error.hint)]
        except BaseException as error:
            torch.distributed.broadcast_object_list([(f"rank 0 failed: {error!r}", None)])
            raise
    torch.distributed.broadcast_object_list(failure)
    if failure[0] is not None:
        raise CheckpointError(*failure[0])


# --- do the states fit the objects that are to load them? Checked before anything is changed ---


_NUMBER_TYPES = (bool, int, float)


def require_states_fit(parts: Mapping[str, Any], states: Mapping[str, Any], checkpoint_path: str) -> None:
    """Raise CheckpointError, with its path, for the first state whose type differs from that of the part."""
    for name, part in parts.items():
        misfit = _misfit_or_empty(part, states[name], name)
        if misfit:
            raise CheckpointError(
                f"checkpoint.load({checkpoint_path!r}): {misfit}", "Make it as it was made in the run that saved it."
            )


def _misfit_or_empty(part: Any, state: Any, name: str) -> str:
    """Return why a part could not take its state; "" if it can."""
    if not hasattr(part, "load_state_dict"):
        return _container_misfit_or_empty(part, state, name)
    if not isinstance(state, Mapping):
        return f"{name} ({type(part).__name__}) did not take its state: it is a {type(state).__name__}, not a dict."
    if isinstance(part, torch.nn.Module):
        misfit = _module_misfit_or_empty(part, state)
    elif isinstance(part, torch.optim.Optimizer):
        misfit = _optimizer_misfit_or_empty(part, state)
    else:
        misfit = _type_mismatch_or_empty(part.state_dict(), state) if hasattr(part, "state_dict") else ""
    return f"{name} ({type(part).__name__}) did not take its state: {misfit}." if misfit else ""


def _container_misfit_or_empty(part: Any, state: Any, name: str) -> str:
    """Return the misfit of a dict or list of parts."""
    if not isinstance(state, Mapping if isinstance(part, Mapping) else list):
        return f"{name} has {len(part)} parts, and the checkpoint holds a {type(state).__name__} for them."
    keys = list(part) if isinstance(part, Mapping) else list(range(len(part)))
    there = list(state) if isinstance(state, Mapping) else list(range(len(state)))
    if [str(key) for key in keys] != [str(key) for key in there]:
        return f"{name} has {keys}, and the checkpoint has {escape_as_one_line(there)}."
    states = [state[str(key)] for key in keys] if isinstance(state, Mapping) else list(state)
    inner = zip(keys, states, strict=True)
    return next((misfit for key, one in inner if (misfit := _misfit_or_empty(part[key], one, f"{name}[{key!r}]"))), "")


def _module_misfit_or_empty(part: torch.nn.Module, state: Mapping[str, Any]) -> str:
    """Return the misfit of a module: tensors by name. What a module's own hooks do with the state is up to them."""
    metadata = getattr(state, "_metadata", None)
    if metadata is not None and not (
        isinstance(metadata, dict) and all(isinstance(inner, dict) for inner in metadata.values())
    ):
        return "its versions are damaged"
    own = part.state_dict()
    for key, value in state.items():
        here = own.get(key)
        if isinstance(here, torch.Tensor):
            if not isinstance(value, torch.Tensor):
                return f"{escape_as_one_line(key)} is a {type(value).__name__}, not a tensor"
            if value.is_complex() and not here.is_complex():
                return f"{escape_as_one_line(key)} is complex"
        elif not isinstance(key, str):
            return f"{escape_as_one_line(key)} is not a name"
    return _names_or_shapes_misfit_or_empty(own, state) if _loads_as_torch_does(part) else ""


def _loads_as_torch_does(part: torch.nn.Module) -> bool:
    """Return whether no module in it, and no hook, may rename entries or reshape them while they are loaded."""
    if type(part).load_state_dict is not torch.nn.Module.load_state_dict or "load_state_dict" in vars(part):
        return False
    return all(
        type(module)._load_from_state_dict.__module__.startswith("torch.nn.modules.")
        and not module._load_state_dict_pre_hooks
        and not module._load_state_dict_post_hooks
        for module in part.modules()
    )


def _names_or_shapes_misfit_or_empty(own: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    """Return the first entry that torch would refuse, which it does only after it has copied the others."""
    # torch fills this name in itself: BatchNorm did not always have it.
    missing = [key for key in own if key not in state and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in state if key not in own]
    if missing or unexpected:
        return f"it lacks {escape_as_one_line(missing)}, and only it has {escape_as_one_line(unexpected)}"
    for key, here in own.items():
        value = state.get(key)
        if not isinstance(here, torch.Tensor) or torch.nn.parameter.is_lazy(here) or value is None:
            continue
        if here.shape != value.shape and not (here.dim() == 0 and value.shape == (1,)):
            return f"{escape_as_one_line(key)} has shape {tuple(value.shape)}, and here {tuple(here.shape)}"
    return ""


def _optimizer_misfit_or_empty(part: torch.optim.Optimizer, state: Mapping[str, Any]) -> str:
    """Return the misfit of an optimizer: its groups, and that there is a dict for each parameter."""
    groups, states = state.get("param_groups"), state.get("state")
    if not isinstance(groups, list) or not isinstance(states, Mapping):
        return "it holds no groups of parameters"
    if len(groups) != len(part.param_groups):
        return f"it holds {len(groups)} groups of parameters, and here there are {len(part.param_groups)}"
    for own, group in zip(part.param_groups, groups, strict=True):
        if not isinstance(group, Mapping) or not isinstance(group.get("params"), list):
            return "a group of it holds no parameters"
        if len(group["params"]) != len(own["params"]):
            return f"a group of it holds {len(group['params'])} parameters, and here {len(own['params'])}"
        misfit = _type_mismatch_or_empty({k: v for k, v in own.items() if k != "params"}, group)
        if misfit:
            return misfit
    for number, held in states.items():
        if not isinstance(held, Mapping):
            return f"the state of parameter {escape_as_one_line(number)} is a {type(held).__name__}, not a dict"
    return ""


def _type_mismatch_or_empty(expected: Any, loaded: Any, path: str = "", depth: int = 0) -> str:
    """Return the first entry of a state whose type differs from the part's; entries that only one has are ignored."""
    if expected is None or loaded is None or depth > 20:
        return ""
    for kinds in (_NUMBER_TYPES, (str,), (list, tuple), (Mapping,), (torch.Tensor,)):
        # a number may have become a tensor and back, as learning rates do
        accepted: tuple[Any, ...] = kinds
        if kinds is _NUMBER_TYPES:
            accepted = (*kinds, torch.Tensor)
        elif torch.Tensor in kinds:
            accepted = (*kinds, *_NUMBER_TYPES)
        if isinstance(expected, kinds):
            if not isinstance(loaded, accepted):
                return f"{path or 'it'} is a {type(loaded).__name__}, not a {type(expected).__name__}"
            break
    if isinstance(expected, Mapping):
        both = ((f"{path}[{key!r}]", expected[key], loaded[key]) for key in expected if key in loaded)
        return next((misfit for where, a, b in both if (misfit := _type_mismatch_or_empty(a, b, where, depth + 1))), "")
    return ""
