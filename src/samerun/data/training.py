"""Save a training and take it up again: parts with a `state_dict`, and all random generators."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import torch

from samerun.base.atomic_file import replace_file
from samerun.base.errors import CheckpointError, SamerunError, UnfitStateError
from samerun.base.text import shown
from samerun.control.ddp import warn_if_buckets_change
from samerun.control.rng.snapshot import restore_snapshot, take_snapshot
from samerun.control.rng.state_dict import load_state_dict, state_dict
from samerun.control.streams.process_seed import find_rank
from samerun.data import fit, plain, stored
from samerun.data.signals import held_back

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
    """torch's writer reports a full disk as a RuntimeError of its own."""
    target: Any = _NotingFile(file)
    try:
        with held_back(target.stop):
            torch.save(content, target)
    except RuntimeError as error:
        raise (target.error or error) from error
    finally:
        target.closed = True
    if target.error is not None:
        raise target.error


class _NotingFile:
    """A file that remembers with what a write failed, and takes what torch writes after that, or when it is closed.

    torch's writer writes the end of the file when it is deleted, if it has not before, and what is raised there
    ends the process.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.error: BaseException | None = None
        self.closed = self.stopped = False

    def stop(self) -> None:
        """Fail at the next write."""
        self.stopped = True

    def write(self, data: Any) -> int:
        if self.closed or self.error is not None:
            return memoryview(data).nbytes
        try:
            if self.stopped:
                raise KeyboardInterrupt
            return self.file.write(data)
        except BaseException as error:
            self.error = error
            raise

    def flush(self) -> None:
        if not self.closed:
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
    fit.check_parts(parts, held, str(target))
    if rng:
        _try_generators(held["rng"], target)
    stored.copy_memory(held)
    for name, part in parts.items():
        _put_into(part, held[name], name, target)
    warn_if_buckets_change(parts.get("model"))
    if rng:
        _put_back_generators(held["rng"], target)
    return held["extra"]


def read(target: Path) -> dict[str, Any]:
    """The parts of a checkpoint, its digests checked. Raises CheckpointError if it is missing or damaged."""
    if not target.exists():
        hint = _offer(target) or "Is the path right? The first run has to start without a checkpoint."
        raise CheckpointError(f"checkpoint.load({str(target)!r}): there is no such file.", hint)
    content: Any = None
    try:
        content = stored.read_values(target)
        reason = _what_is_wrong(content, 4 * target.stat().st_size + plain.BUDGET)
    except (stored.NotReadable, CheckpointError, OSError) as error:
        reason = error.message if isinstance(error, CheckpointError) else str(error)
    if reason:
        raise CheckpointError(
            f"checkpoint.load({str(target)!r}): the file is damaged or none of samerun's: {shown(reason)}.",
            _offer(target) or "There is no previous checkpoint beside it.",
        )
    held: dict[str, Any] = content["parts"]
    return held


def _what_is_wrong(content: Any, budget: int) -> str:
    if not isinstance(content, dict) or "samerun_checkpoint" not in content:
        return "it was not written by samerun.checkpoint.save"
    version = content["samerun_checkpoint"]
    if type(version) is not int or version != VERSION:
        return f"it has layout {shown(version, 40)}, and this samerun knows {VERSION}"
    held, digests = content.get("parts"), content.get("digests")
    if not isinstance(held, dict) or not isinstance(digests, dict) or held.keys() != digests.keys():
        return "parts are missing"
    if not all(isinstance(name, str) for name in held) or not {"extra", "rng"} <= held.keys():
        return "parts are missing"
    if not all(isinstance(digest, str) for digest in digests.values()):
        return "digests are missing"
    changed = [name for name, value in held.items() if not _has_digest(value, digests[name], budget)]
    return f"the digest of {', '.join(changed)} does not match" if changed else ""


def _has_digest(value: Any, expected: Any, budget: int) -> bool:
    """Also the digest that versions before this one gave expanded tensors."""
    return any(plain.digest(value, budget=budget, dense=dense) == expected for dense in (False, True))


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
        except Exception as error:
            said = error.message if isinstance(error, SamerunError) else str(error)
            hint = error.hint if isinstance(error, SamerunError) else "Make it as it was made in the run that saved it."
            raise UnfitStateError(
                f"checkpoint.load({str(target)!r}): {name} ({type(part).__name__}) did not take its state: {said}", hint
            ) from error
        return
    for key in list(part) if isinstance(part, Mapping) else range(len(part)):
        _put_into(part[key], state[str(key) if isinstance(state, Mapping) else key], f"{name}[{key!r}]", target)


def _try_generators(of_ranks: Any, target: Path) -> None:
    """Whether the generators take their states, before anything else is changed; they are as before afterwards."""
    if not isinstance(of_ranks, list) or not of_ranks:
        raise CheckpointError(
            f"checkpoint.load({str(target)!r}): it holds no states of random generators.", "Load it with rng=False."
        )
    before = take_snapshot()
    try:
        _put_back_generators(of_ranks, target)
    finally:
        restore_snapshot(before)


def _put_back_generators(of_ranks: list[Any], target: Path) -> None:
    """Those of this rank. A rank that the saved run had not got takes rank 0's, with its own distinct streams."""
    rank = find_rank() or 0
    try:
        if rank < len(of_ranks):
            load_state_dict(of_ranks[rank])
        else:
            load_state_dict(of_ranks[0], strict=False)
    except Exception as error:
        said = error.message if isinstance(error, SamerunError) else str(error)
        hint = error.hint if isinstance(error, SamerunError) else None
        raise UnfitStateError(f"checkpoint.load({str(target)!r}): rng: {said}", hint) from error


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
