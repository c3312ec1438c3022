"""`samerun.checkpoint`: calling it checkpoints activations; `.save` and `.load` are for a whole training."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from samerun.control.rng.activation_checkpoint import checkpoint as checkpoint_activations

if TYPE_CHECKING:
    from typing_extensions import Unpack


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

        save_checkpoint(path, _drop_absent_parts(parts, "save"), extra)

    def load(self, path: str | os.PathLike[str], *, rng: bool = True, **parts: Unpack[CheckpointParts]) -> Any:
        """Restore what `save` wrote, the random generators last; return its `extra`.

        Call it right before the next step: objects created after it may draw random numbers. Parts that are not
        passed are not restored, for example to load a model alone for evaluation (with rng=False the generators
        stay as they are).

        Raises CheckpointError, and changes nothing, if there is no file, if it is damaged (a digest does not
        match; the error says whether the previous one is intact), if it lacks a part that is passed, or if a part
        visibly does not fit: a model with other layers, an optimizer with other groups. Raises CheckpointError too if
        a part rejects its state only when it gets it (a class or a hook of your own): parts before it have then
        changed. Warns if the model is a DistributedDataParallel that cannot continue bit for bit: on 3 or more
        ranks without `samerun.ddp_comm_hook`.
        """
        from samerun.data.training_checkpoint import load_checkpoint

        return load_checkpoint(path, _drop_absent_parts(parts, "load"), rng)

    def __repr__(self) -> str:
        return "samerun.checkpoint"


def _drop_absent_parts(parts: CheckpointParts, method: Literal["save", "load"]) -> dict[str, Any]:
    """Drop parts that are None. Raises TypeError for unknown names, as a function with these parameters would."""
    for name in parts:
        if name not in CheckpointParts.__annotations__:
            known = ", ".join(CheckpointParts.__annotations__)
            raise TypeError(f"checkpoint.{method}() has no argument {name!r}; parts are {known}")
    return {name: part for name, part in parts.items() if part is not None}


checkpoint = Checkpoint()
