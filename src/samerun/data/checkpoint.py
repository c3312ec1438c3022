"""`samerun.checkpoint`: called, it checkpoints activations; `.save` and `.load` are for a whole training."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict

from samerun.control.rng.activation_checkpoint import checkpoint as checkpoint_activations

if TYPE_CHECKING:
    from typing import Unpack


class Parts(TypedDict, total=False):
    """What can be saved and loaded."""

    model: Any
    optimizer: Any
    scheduler: Any
    scaler: Any
    loader: Any


class Checkpoint:
    """Two things that go by this name.

    hidden = samerun.checkpoint(block, hidden, use_reentrant=False)      # activation checkpointing
    samerun.checkpoint.save("last.pt", model=model, optimizer=optimizer, loader=loader, extra={"step": step})
    extra = samerun.checkpoint.load("last.pt", model=model, optimizer=optimizer, loader=loader)
    """

    __name__ = "checkpoint"

    def __call__(self, function: Callable[..., Any], *args: Any, preserve_rng_state: bool = True, **kwargs: Any) -> Any:
        return checkpoint_activations(function, *args, preserve_rng_state=preserve_rng_state, **kwargs)

    __call__.__doc__ = checkpoint_activations.__doc__

    def save(self, path: str | os.PathLike[str], *, extra: Any = None, **parts: Unpack[Parts]) -> None:
        """Write everything that is needed to go on exactly: these, and every random generator of the process.

        parts: model=, optimizer=, scheduler=, scaler=, loader=: whatever has `state_dict()`, or a dict or list of
        such; None: it is left out.
        extra: plain values of your own (numbers, strings, lists, dicts, tensors), which `load` returns.

        The file is written beside `path`, synced, and then takes its place; what stood there is kept as
        `path + ".previous"`. So there is a whole checkpoint at every moment, also if the process is killed. It
        is a file of `torch.save` that `torch.load(path, weights_only=True)` reads, and holds a digest of every
        part.

        In a distributed run all ranks must call it: rank 0 writes its own parts and the generators of all.

        Raises CheckpointError if a part has no `state_dict()`, a value is not plain, or the file cannot be
        written; then the checkpoint that was there is still there.
        """
        from samerun.data.training import save

        save(path, _given(parts, "save"), extra)

    def load(self, path: str | os.PathLike[str], *, rng: bool = True, **parts: Unpack[Parts]) -> Any:
        """Put back what `save` wrote, the random generators last; return its `extra`.

        Call it right before the next step: what is made after it may draw. What is not passed is not put back:
        a model alone for evaluation, say (with rng=False the generators stay as they are).

        Raises CheckpointError, and changes nothing, if there is no file, if it is damaged (a digest does not
        match; the error says whether the previous one is whole), or if it lacks a part that is passed.
        CheckpointError too if a part does not take its state, such as a model with other layers: then parts
        before it have changed. Warns where the model is a DistributedDataParallel that cannot go on bit for bit:
        on 3 or more ranks without `samerun.ddp_comm_hook`.
        """
        from samerun.data.training import load

        return load(path, _given(parts, "load"), rng)

    def __repr__(self) -> str:
        return "samerun.checkpoint"


def _given(parts: Parts, call: str) -> dict[str, Any]:
    """Those that are there. Raises TypeError for other names, as a function does that lists them."""
    for name in parts:
        if name not in Parts.__annotations__:
            known = ", ".join(Parts.__annotations__)
            raise TypeError(f"checkpoint.{call}() has no argument {name!r}; parts are {known}")
    return {name: part for name, part in parts.items() if part is not None}


checkpoint = Checkpoint()
