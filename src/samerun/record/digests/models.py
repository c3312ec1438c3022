"""What a model holds, read from its own dictionaries: methods that the program overrides are not called."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

Named = Iterator[tuple[str, Any]]


def items_of(mapping: Any) -> list[tuple[Any, Any]]:
    """The items of a dict of whatever class, without calling a method of that class."""
    kind = type(mapping)
    if kind is dict:
        return list(mapping.items())
    if issubclass(kind, OrderedDict):
        return list(OrderedDict.items(mapping))
    if issubclass(kind, dict):
        return list(dict.items(mapping))
    if kind.__module__.startswith("torch."):  # what a compiled script holds
        return list(mapping.items())
    return []


def named_modules(root: Any) -> Named:
    """As `Module.named_modules()` gives them: each once."""
    seen: dict[int, Any] = {}  # holds the objects: scripted modules make them anew, and an id must not come twice
    waiting = [("", root)]
    while waiting:
        name, module = waiting.pop()
        if module is None or id(module) in seen:
            continue
        seen[id(module)] = module
        yield name, module
        inner = items_of(vars(module).get("_modules"))
        waiting += [(f"{name}.{key}" if name else str(key), each) for key, each in reversed(inner)]


def named_parameters(root: Any) -> Named:
    """As `Module.named_parameters()` gives them."""
    return _named_members(root, "_parameters")


def named_buffers(root: Any) -> Named:
    """As `Module.named_buffers()` gives them."""
    return _named_members(root, "_buffers")


def _named_members(root: Any, kind: str) -> Named:
    seen: dict[int, Any] = {}
    for prefix, module in named_modules(root):
        for key, tensor in items_of(vars(module).get(kind)):
            if tensor is not None and id(tensor) not in seen:
                seen[id(tensor)] = tensor
                yield f"{prefix}.{key}" if prefix else str(key), tensor
