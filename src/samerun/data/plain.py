"""Plain values: those that `torch.load(weights_only=True)` gives back. Check them, and digest them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from xxhash import xxh3_128

from samerun.base.errors import CheckpointError

_SCALARS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
_LISTS = (list, tuple, set)


def check(value: Any, path: str) -> None:
    """Raise CheckpointError, with the path to it, for the first part that is not plain."""
    for where, part in _parts(path, value):
        kind = type(part)
        plain = isinstance(part, torch.Tensor) or kind in _SCALARS or kind in _LISTS or isinstance(part, dict)
        if not plain or (isinstance(part, dict) and kind.__module__ not in ("builtins", "collections")):
            hint = "Save numbers, strings, lists, dicts and tensors; of other objects what is needed to make them."
            if kind.__module__ == "numpy":
                hint = "Turn NumPy numbers into Python's (.item()), and arrays into tensors (torch.from_numpy)."
            raise CheckpointError(
                f"checkpoint.save(): {where} is a {kind.__module__}.{kind.__qualname__}, which torch does not load"
                " with weights_only=True.",
                hint,
            )


def digest(value: Any) -> str:
    """32 hex digits that stand for every bit of a plain value, its types and its order."""
    running = xxh3_128()
    for where, part in _parts("", value):
        kind = "tensor" if isinstance(part, torch.Tensor) else type(part).__name__
        running.update(f"{where}\0{kind}\0".encode("utf-8", "surrogatepass"))
        if isinstance(part, torch.Tensor):
            running.update(f"{part.dtype}{tuple(part.shape)}".encode())
            running.update(_memory(part))
        elif kind == "set":
            running.update(repr(sorted(map(repr, part))).encode())
        elif not isinstance(part, (*_LISTS, dict)):
            running.update(repr(part).encode("utf-8", "surrogatepass"))
        else:
            running.update(str(len(part)).encode())
    return running.hexdigest()


def _parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The value and all that is in it, in order, each with its path."""
    waiting = [(path, value)]
    while waiting:
        where, part = waiting.pop()
        yield where, part
        if isinstance(part, Mapping):
            waiting += [(f"{where}[{key!r}]", inner) for key, inner in reversed(list(part.items()))]
        elif isinstance(part, (list, tuple)) and not isinstance(part, torch.Size):
            waiting += [(f"{where}[{at}]", inner) for at, inner in reversed(list(enumerate(part)))]


def _memory(tensor: torch.Tensor) -> Any:
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        return repr(tensor).encode()
    dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return dense.reshape(-1).view(torch.uint8).numpy() if dense.numel() else b""
