"""Find generators that a dataset or a transform holds for itself, and notice when a sample draws from one.

No key reaches them: what they give depends on the process that loads the sample, and on what it loaded before.
"""

from __future__ import annotations

import random
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

FURTHEST = 2000
"""So many objects are looked at; so many elements of a collection."""
WIDEST = 64
_LEAVES = (str, bytes, int, float, complex, bool, type(None), np.ndarray, torch.Tensor, type, types.ModuleType)


class OwnGenerators:
    """The generators that hang on some objects. `before` and `after` stand around what may draw."""

    def __init__(self, roots: Mapping[str, Any]) -> None:
        self.found = dict(find(roots))
        self._before: dict[str, Any] = {}
        self._named: set[str] = set()

    def before(self) -> None:
        for path, generator in self.found.items():
            self._before[path] = state_of(generator)

    def after(self) -> tuple[str, ...]:
        """The names of those that were drawn from since `before`, each once."""
        moved = [path for path, generator in self.found.items() if state_of(generator) != self._before[path]]
        new = tuple(f"{path} ({kind_of(self.found[path])})" for path in moved if path not in self._named)
        self._named.update(moved)
        for path in moved:
            del self.found[path]
        return new


def find(roots: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """(path, generator): in attributes, collections, closures and globals that the objects' own code names."""
    known: set[int] = {id(random._inst), id(torch.default_generator), id(getattr(np.random.mtrand, "_rand", None))}
    waiting = list(roots.items())
    while waiting and len(known) < FURTHEST:
        path, thing = waiting.pop(0)
        if isinstance(thing, _LEAVES) or id(thing) in known:
            continue
        known.add(id(thing))
        if kind_of(thing):
            if not hasattr(thing, "home"):  # a stream's own generator is started with the sample
                yield path, thing
            continue
        waiting += parts_of(path, thing)


def parts_of(path: str, thing: Any) -> list[tuple[str, Any]]:
    if isinstance(thing, Mapping):
        return [(f"{path}[{key!r}]", thing[key]) for key in list(thing)[:WIDEST]] if type(thing) is dict else []
    if isinstance(thing, (list, tuple)):
        return [(f"{path}[{at}]", part) for at, part in enumerate(thing[:WIDEST])]
    if isinstance(thing, types.MethodType):
        return [(path, thing.__self__), (path, thing.__func__)]
    if isinstance(thing, types.FunctionType):
        return _of_function(path, thing)
    parts = [(f"{path}.{name}", part) for name, part in _attributes(thing)]
    if isinstance(thing, types.BuiltinFunctionType) or type(thing).__module__ == "builtins":
        return parts
    for kind in type(thing).__mro__:
        for name, method in vars(kind).items():
            if isinstance(method, types.FunctionType) and not kind.__module__.startswith("torch."):
                parts += [
                    (f"{path}.{name}: {inner.rpartition(': ')[2]}", part) for inner, part in _of_function("", method)
                ]
    return parts


def _attributes(thing: Any) -> list[tuple[str, Any]]:
    own = list(getattr(thing, "__dict__", {}).items())[:WIDEST]
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ()) if isinstance(name, str)]
    return own + [(name, getattr(thing, name)) for name in slots if hasattr(thing, name)]


def _of_function(path: str, function: types.FunctionType) -> list[tuple[str, Any]]:
    """What a function can draw from by name. Of the globals only generators: not the whole program."""
    lead = f"{path}: " if path else ""
    code, parts = function.__code__, []
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        try:
            parts.append((f"{lead}{name}", cell.cell_contents))
        except ValueError:  # not set yet
            continue
    for name in code.co_names:
        value = function.__globals__.get(name)
        if value is not None and kind_of(value):
            parts.append((f"{lead}{name}", value))
    return parts


def kind_of(thing: Any) -> str:
    """The name of a generator's class; "" for other objects."""
    for kind, name in (
        (np.random.Generator, "numpy.random.Generator"),
        (np.random.RandomState, "numpy.random.RandomState"),
        (torch.Generator, "torch.Generator"),
        (random.SystemRandom, ""),
        (random.Random, "random.Random"),
    ):
        if isinstance(thing, kind):
            return name
    return ""


def state_of(generator: Any) -> Any:
    """Something to compare with; cheap for what is cheap."""
    if isinstance(generator, np.random.Generator):
        return repr(generator.bit_generator.state)
    if isinstance(generator, np.random.RandomState):
        return [part.tolist() if hasattr(part, "tolist") else part for part in generator.get_state()]
    if isinstance(generator, torch.Generator):
        return generator.get_state().numpy().tobytes()
    return generator.getstate()
