"""What a training holds after an optimizer step, as a few digests. Imports torch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from xxhash import xxh3_128_digest

from samerun.record.digest import dense_digest
from samerun.record.models import named_buffers
from samerun.record.quick_mode import digest
from samerun.record.recorder import NOTHING, Recorder
from samerun.record.rng_digests import numpy_state_digest, python_state_digest

Leaf = tuple[str, bytes]


def leaves_of(optimizer: Any, recorder: Recorder) -> Iterator[Leaf]:
    """(name, digest) of every leaf of a step, in a fixed order."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    yield "params", joined(digest(p) for p in parameters)
    yield "grads", joined(digest(p.grad) if p.grad is not None else NOTHING for p in parameters)
    yield "buffers", joined(digest(b) for b in buffers(recorder))
    yield "optimizer", joined(state_digests(optimizer, parameters))
    yield "loss", recorder.last_loss
    yield "batch", recorder.last_batch
    yield from rng_leaves()


def joined(parts: Iterator[bytes]) -> bytes:
    return xxh3_128_digest(b"".join(parts))


def buffers(recorder: Recorder) -> Iterator[Any]:
    """The buffers of every model that was called and is still alive."""
    for reference in list(recorder.roots.values()):
        root = reference()
        if root is not None:
            yield from (buffer for _, buffer in named_buffers(root))


def state_digests(optimizer: Any, parameters: list[Any]) -> Iterator[bytes]:
    """The optimizer's state in the order of its parameters, then its hyperparameters."""
    for parameter in parameters:
        for value in (optimizer.state.get(parameter) or {}).values():
            yield digest(value) if isinstance(value, torch.Tensor) else plain(value)
    for group in optimizer.param_groups:
        for key, value in group.items():
            if key != "params":
                yield digest(value) if isinstance(value, torch.Tensor) else plain(value)


def plain(value: Any) -> bytes:
    """Digest of a number or a text; other objects do not count: they may print an address."""
    if value is None or isinstance(value, (bool, int, float, str, tuple)):
        return xxh3_128_digest(repr(value).encode())
    return NOTHING


def rng_leaves() -> Iterator[Leaf]:
    """The states of torch's generators, NumPy's and Python's: a leaf each."""
    states = [dense_digest(torch.get_rng_state(), 0)]
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states += [dense_digest(value, 0) for value in torch.cuda.get_rng_state_all()]
    yield "rng", joined(iter(states))
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        yield "rng.numpy", numpy_state_digest(numpy_random.get_state(legacy=False))
    python: Any = sys.modules.get("random")
    if python is not None:
        yield "rng.python", python_state_digest(python.getstate())
