"""Save a training and take it up again: parts with a `state_dict`, and all random generators."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import torch

from samerun.base.atomic_file import replace_file
from samerun.base.errors import CheckpointError, SamerunError
from samerun.control.ddp_buckets import warn_of_other_buckets
from samerun.control.place import known_rank
from samerun.control.state_dict import load_state_dict, state_dict
from samerun.data import plain

VERSION = 1
"""Of the file's layout. A newer layout gets a new number, and older ones stay readable."""


def save(path: str | os.PathLike[str], parts: Mapping[str, Any], extra: Any) -> None:
    """See `samerun.checkpoint.save`."""
    target = Path(path)
    rng = _of_all_ranks(state_dict())
    _together(lambda: _write(target, parts, extra, rng))


def _write(target: Path, parts: Mapping[str, Any], extra: Any, rng: list[Any]) -> None:
    states = {name: _state_of(part, name) for name, part in parts.items()}
    held = {**states, "extra": extra, "rng": rng}
    for name, value in held.items():
        plain.check(value, name)
    digests = {name: plain.digest(value) for name, value in held.items()}
    content = {"samerun_checkpoint": VERSION, "parts": held, "digests": digests, "torch": str(torch.__version__)}
    try:
        replace_file(target, lambda file: _save(content, file), previous=_previous_of(target))
    except OSError as error:
        raise CheckpointError(
            f"checkpoint.save({str(target)!r}): {error.strerror or error}.",
            "Name a file in a folder that is there and has room. The checkpoint before this one is untouched.",
        ) from error
    except SamerunError as error:
        raise CheckpointError(f"checkpoint.save({str(target)!r}): {error.message}", error.hint) from error


def _save(content: dict[str, Any], file: IO[bytes]) -> None:
    """torch's writer reports a full disk as a RuntimeError of its own; Python's file has seen the real reason."""
    target: Any = _Failures(file)
    try:
        torch.save(content, target)
    except RuntimeError as error:
        raise (target.error or error) from error


class _Failures:
    """A file that remembers the error with which a write failed."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return self.file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self.file.flush()


def _previous_of(path: Path) -> Path:
    """Where the checkpoint that stood at `path` before is kept."""
    return path.with_name(path.name + ".previous")


def load(path: str | os.PathLike[str], parts: Mapping[str, Any], rng: bool) -> Any:
    """See `samerun.checkpoint.load`."""
    target = Path(path)
    held = read(target)
    absent = [name for name in parts if name not in held]
    if absent:
        there = ", ".join(name for name in held if name not in ("rng", "extra")) or "no parts"
        raise CheckpointError(
            f"checkpoint.load({str(target)!r}): it holds no {' and no '.join(absent)}; it holds {there}.",
            f"Save it too: samerun.checkpoint.save(path, {', '.join(f'{name}={name}' for name in absent)}, ...).",
        )
    for name, part in parts.items():
        _put_into(part, held[name], name, target)
    warn_of_other_buckets(parts.get("model"))
    if rng:
        _put_back_generators(held["rng"])
    return held["extra"]


def read(target: Path) -> dict[str, Any]:
    """The parts of a checkpoint, its digests checked. Raises CheckpointError if it is missing or damaged."""
    if not target.exists():
        hint = _offer(target) or "Is the path right? The first run has to start without a checkpoint."
        raise CheckpointError(f"checkpoint.load({str(target)!r}): there is no such file.", hint)
    reason = ""
    content: Any = None
    try:
        content = torch.load(target, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises what its readers raise: RuntimeError, UnpicklingError, EOFError, ...
        reason = f"torch cannot read it ({(str(error) or type(error).__name__).splitlines()[0][:200]})"
    if not reason:
        reason = _what_is_wrong(content)
    if reason:
        raise CheckpointError(
            f"checkpoint.load({str(target)!r}): the file is damaged or none of samerun's: {reason}.",
            _offer(target) or "There is no previous checkpoint beside it.",
        )
    held: dict[str, Any] = content["parts"]
    return held


def _what_is_wrong(content: Any) -> str:
    if not isinstance(content, dict) or "samerun_checkpoint" not in content:
        return "it was not written by samerun.checkpoint.save"
    if content["samerun_checkpoint"] != VERSION:
        return f"it has layout {content['samerun_checkpoint']!r}, and this samerun knows {VERSION}"
    held, digests = content.get("parts"), content.get("digests")
    if not isinstance(held, dict) or not isinstance(digests, dict) or held.keys() != digests.keys():
        return "parts are missing"
    changed = [name for name, value in held.items() if plain.digest(value) != digests[name]]
    return f"the digest of {', '.join(changed)} does not match" if changed else ""


def _offer(target: Path) -> str:
    """What to do instead, if the previous checkpoint is whole."""
    previous = _previous_of(target)
    if target.name.endswith(".previous") or not previous.exists():
        return ""
    try:
        read(previous)
    except CheckpointError:
        return f"The previous one, {previous}, is damaged too."
    return f"The previous one is whole: samerun.checkpoint.load({str(previous)!r}, ...)."


def _state_of(part: Any, name: str) -> Any:
    if hasattr(part, "state_dict"):
        return part.state_dict()
    if isinstance(part, Mapping):
        return {str(key): _state_of(inner, f"{name}[{key!r}]") for key, inner in part.items()}
    if isinstance(part, (list, tuple)):
        return [_state_of(inner, f"{name}[{at}]") for at, inner in enumerate(part)]
    raise CheckpointError(
        f"checkpoint.save(): {name} is a {type(part).__name__}, which has no state_dict().",
        "Pass the object itself, or put plain values into extra=.",
    )


def _put_into(part: Any, state: Any, name: str, target: Path) -> None:
    if hasattr(part, "load_state_dict"):
        try:
            part.load_state_dict(state)
        except SamerunError:
            raise
        except Exception as error:
            raise CheckpointError(
                f"checkpoint.load({str(target)!r}): {name} ({type(part).__name__}) did not take its state: {error}",
                "Make it as it was made in the run that saved it.",
            ) from error
        return
    keys = list(part) if isinstance(part, Mapping) else list(range(len(part)))
    there = list(state) if isinstance(state, Mapping) else list(range(len(state)))
    if [str(key) for key in keys] != [str(key) for key in there]:
        raise CheckpointError(f"checkpoint.load({str(target)!r}): {name} has {keys}, and the checkpoint has {there}.")
    for key in keys:
        _put_into(part[key], state[str(key) if isinstance(state, Mapping) else key], f"{name}[{key!r}]", target)


def _put_back_generators(of_ranks: list[Any]) -> None:
    """Those of this rank. A rank that the saved run had not got takes rank 0's, with its own distinct streams."""
    rank = known_rank() or 0
    if rank < len(of_ranks):
        load_state_dict(of_ranks[rank])
    else:
        load_state_dict(of_ranks[0], strict=False)


# --- ranks ---------------------------------------------------------------------------------------


def _world() -> int:
    distributed = torch.distributed
    here = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if here else 1


def _of_all_ranks(own: Any) -> list[Any]:
    if _world() == 1:
        return [own]
    states: list[Any] = [None] * _world()
    torch.distributed.all_gather_object(states, own)
    return states


def _together(write: Callable[[], None]) -> None:
    """Rank 0 writes; the others wait, and raise too if it failed."""
    if _world() == 1:
        write()
        return
    said: list[Any] = [None]
    if torch.distributed.get_rank() == 0:
        try:
            write()
        except CheckpointError as error:
            said = [(error.message, error.hint)]
        except BaseException as error:
            torch.distributed.broadcast_object_list([(f"rank 0 failed: {error!r}", None)])
            raise
    torch.distributed.broadcast_object_list(said)
    if said[0] is not None:
        raise CheckpointError(*said[0])
