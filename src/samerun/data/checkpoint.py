"""`samerun.checkpoint`: calling it checkpoints activations; `.save` and `.load` are for a whole training."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from samerun.control.rng.activation_checkpoint import checkpoint as checkpoint_activations

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from samerun.data.sharded_checkpoint import PendingSave


class CheckpointParts(TypedDict, total=False):
    """The parts of a training that can be saved and loaded."""

    model: Any
    optimizer: Any
    scheduler: Any
    scaler: Any
    loader: Any


class Checkpoint:
    """Activation checkpointing as a call, and training checkpoints as methods.

    hidden = samerun.checkpoint(block, hidden, use_reentrant=False)      # activation checkpointing
    samerun.checkpoint.save("last.pt", model=model, optimizer=optimizer, loader=loader, extra={"step": step})
    extra = samerun.checkpoint.load("last.pt", model=model, optimizer=optimizer, loader=loader)
    """

    __name__ = "checkpoint"

    def __call__(self, function: Callable[..., Any], *args: Any, preserve_rng_state: bool = True, **kwargs: Any) -> Any:
        return checkpoint_activations(function, *args, preserve_rng_state=preserve_rng_state, **kwargs)

    __call__.__doc__ = checkpoint_activations.__doc__

    def save(self, path: str | os.PathLike[str], *, extra: Any = None, **parts: Unpack[CheckpointParts]) -> None:
        """Save everything needed to continue exactly: the parts, and every random generator of the process.

        parts: model=, optimizer=, scheduler=, scaler=, loader=: any object with `state_dict()`, or a dict or list of
        such objects; None is skipped.
        extra: plain values of your own (numbers, strings, lists, dicts, tensors), which `load` returns.

        The file is written beside `path`, synced, and then renamed to it; the checkpoint that was there is kept as
        `path + ".previous"`. So there is an intact checkpoint at every moment, even if the process is killed. The
        file is in the format of `torch.save`, readable by `torch.load(path, weights_only=True)`, and holds a digest
        of every part.

        In a distributed run all ranks must call it: rank 0 writes its own parts and the generators of all ranks.

        Raises CheckpointError if a part has no `state_dict()`, a value is not plain, or the file cannot be
        written; the existing checkpoint is then untouched.
        """
        from samerun.data.training_checkpoint import save_checkpoint

        save_checkpoint(path, _drop_none_parts_raise_if_unknown(parts, "save"), extra)

    def load(
        self,
        path: str | os.PathLike[str],
        *,
        rng: bool | Literal["reseed"] = True,
        **parts: Unpack[CheckpointParts],
    ) -> Any:
        """Restore what `save` wrote, the random generators last; return its `extra`.

        Call it right before the next step: objects created after it may draw random numbers. Parts that are not
        passed are not restored, for example to load a model alone for evaluation (with rng=False the generators
        stay as they are).

        Each rank gets the generators that it had. On more ranks than the checkpoint is of, the new ones get those that
        all ranks had alike; if ranks had different ones, or there was only one, nobody can tell what the new ones would
        draw, and CheckpointError says so on all ranks. rng="reseed" then starts theirs anew, on each rank another one,
        derived from the checkpoint and the rank.

        Raises CheckpointError, and changes nothing, if there is no file, if it is damaged (a digest does not
        match; the error says whether the previous one is intact), if it lacks a part that is passed, or if a part
        visibly does not fit: a model with other layers, an optimizer with other groups. Raises CheckpointError too if
        a part rejects its state only when it gets it (a class or a hook of your own): parts before it have then
        changed. Warns if the model is a DistributedDataParallel that cannot continue bit for bit: on 3 or more
        ranks without `samerun.ddp_comm_hook`.
        """
        from samerun.data.training_checkpoint import load_checkpoint

        return load_checkpoint(path, _drop_none_parts_raise_if_unknown(parts, "load"), rng)

    def save_sharded(
        self, folder: str | os.PathLike[str], *, extra: Any = None, wait: bool = True, **parts: Unpack[CheckpointParts]
    ) -> PendingSave | None:
        """Save a training whose parameters are spread over ranks (`fully_shard`), each rank what it holds.

        All ranks call it, with a folder that all of them see. Each writes a file with its part of the tensors of
        model= (needed) and optimizer= (one, or a list), and with what is its own: random generators, named streams,
        loader=, scheduler=, scaler=, buffers such as the statistics of BatchNorm, and `extra`. When all files are
        there, rank 0 makes them the checkpoint, and the one before it stays; older ones are deleted. An interrupted
        save leaves both as they were.

        wait: False copies the state and returns at once, with an object whose `wait()` all ranks must call before the
        process group is destroyed. The next `save_sharded` waits for it too.

        Raises CheckpointError, on all ranks, for what cannot be saved or written, and without a process group.
        """
        from samerun.data.sharded_checkpoint import save_sharded

        return save_sharded(folder, _drop_none_parts_raise_if_unknown(parts, "save_sharded"), extra, wait)

    def load_sharded(
        self,
        folder: str | os.PathLike[str],
        *,
        rng: bool | Literal["reseed"] = True,
        previous: bool = False,
        **parts: Unpack[CheckpointParts],
    ) -> Any:
        """Restore what `save_sharded` wrote, on as many ranks or on others, random generators last; return `extra`.

        On as many ranks each gets what it had. On another number tensors are shared out anew. What is a rank's own can
        be given to others only if all ranks had it alike: a loader with shard=True, a scheduler, streams that are the
        same on all ranks, generators from which nobody has drawn something else. Where ranks had different ones,
        CheckpointError says which; so it does for the generators of a single rank, which cannot be given to several.
        rng="reseed" starts such generators anew, on each rank another one, derived from the seed in force; rng=False
        leaves all generators as they are.

        previous: load the checkpoint before the last one.

        Raises CheckpointError, on all ranks and before anything is changed, if there is no checkpoint, if a file that
        is needed is damaged or not samerun's, or if a part does not fit.
        """
        from samerun.data.sharded_checkpoint import load_sharded

        return load_sharded(folder, _drop_none_parts_raise_if_unknown(parts, "load_sharded"), rng, previous)

    def __repr__(self) -> str:
        return "samerun.checkpoint"


def _drop_none_parts_raise_if_unknown(parts: CheckpointParts, method: str) -> dict[str, Any]:
    """Drop parts that are None. Raises TypeError for unknown names, as a function with these parameters would."""
    for name in parts:
        if name not in CheckpointParts.__annotations__:
            known = ", ".join(CheckpointParts.__annotations__)
            raise TypeError(f"checkpoint.{method}() has no argument {name!r}; parts are {known}")
    return {name: part for name, part in parts.items() if part is not None}


checkpoint = Checkpoint()
