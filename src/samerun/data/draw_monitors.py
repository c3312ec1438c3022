"""Notice draws that no key reaches: from generators the dataset owns, and from libraries that `keyed=` leaves out.

What such a generator gives depends on the process that loads the sample, and on what it loaded before.
"""

from __future__ import annotations

import pickle
import random
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from samerun.base.errors import DataError

MAX_OBJECTS = 2000
"""How many objects are searched."""
MAX_PARTS = 64
"""How many attributes or elements of one object are searched."""
_LEAVES = (str, bytes, int, float, complex, bool, type(None), np.ndarray, torch.Tensor, type, types.ModuleType)


class PrivateGeneratorMonitor:
    """Notices draws from generators that are reachable from some objects."""

    def __init__(self, roots: Mapping[str, Any]) -> None:
        self.generators = dict(find_private_generators_of_objects_and_code(roots))
        self._before: dict[str, Any] = {}
        self._named: set[str] = set()

    def snapshot_states(self) -> None:
        """Call it before a batch is loaded."""
        for path, generator in self.generators.items():
            self._before[path] = _read_comparable_state(generator)

    def take_names_of_newly_drawn_generators(self) -> tuple[str, ...]:
        """Return the names of generators drawn from since `snapshot_states`; each is reported only once."""
        before = self._before
        moved = [
            path for path, generator in self.generators.items() if _read_comparable_state(generator) != before[path]
        ]
        new = tuple(
            f"{path} ({generator_class_name_or_empty(self.generators[path])})"
            for path in moved
            if path not in self._named
        )
        self._named.update(moved)
        for path in moved:
            del self.generators[path]
        return new


def find_private_generators_of_objects_and_code(roots: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (path, generator) for each in attributes, collections, closures, or globals that the objects' code uses."""
    known: set[int] = {id(random._inst), id(torch.default_generator), id(getattr(np.random.mtrand, "_rand", None))}
    waiting = list(roots.items())
    while waiting and len(known) < MAX_OBJECTS:
        path, thing = waiting.pop(0)
        if isinstance(thing, _LEAVES) or id(thing) in known:
            continue
        known.add(id(thing))
        if generator_class_name_or_empty(thing):
            if not hasattr(thing, "home"):  # a named stream's generator is seeded with the sample
                yield path, thing
            continue
        waiting += _list_references(path, thing)


def _list_references(path: str, thing: Any) -> list[tuple[str, Any]]:
    """Return (path, object) for everything that an object refers to directly."""
    if isinstance(thing, Mapping):
        return [(f"{path}[{key!r}]", thing[key]) for key in list(thing)[:MAX_PARTS]] if type(thing) is dict else []
    if isinstance(thing, (list, tuple)):
        return [(f"{path}[{at}]", part) for at, part in enumerate(thing[:MAX_PARTS])]
    if isinstance(thing, types.MethodType):
        return [(path, thing.__self__), (path, thing.__func__)]
    if isinstance(thing, types.FunctionType):
        return _list_function_references(path, thing)
    parts = [(f"{path}.{name}", part) for name, part in _list_attributes(thing)]
    if isinstance(thing, types.BuiltinFunctionType) or type(thing).__module__ == "builtins":
        return parts
    for kind in type(thing).__mro__:
        for name, method in vars(kind).items():
            if isinstance(method, types.FunctionType) and not kind.__module__.startswith("torch."):
                inside = _list_function_references("", method)
                parts += [(f"{path}.{name}: {inner.rpartition(': ')[2]}", part) for inner, part in inside]
    return parts


def _list_attributes(thing: Any) -> list[tuple[str, Any]]:
    own = list(getattr(thing, "__dict__", {}).items())[:MAX_PARTS]
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ()) if isinstance(name, str)]
    return own + [(name, getattr(thing, name)) for name in slots if hasattr(thing, name)]


def _list_function_references(path: str, function: types.FunctionType) -> list[tuple[str, Any]]:
    """Return a function's closure variables, and the generators among the globals it names.

    Other globals are not followed: through them the search would reach the whole program.
    """
    lead = f"{path}: " if path else ""
    code, parts = function.__code__, []
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        try:
            parts.append((f"{lead}{name}", cell.cell_contents))
        except ValueError:  # not set yet
            continue
    for name in code.co_names:
        value = function.__globals__.get(name)
        if value is not None and generator_class_name_or_empty(value):
            parts.append((f"{lead}{name}", value))
    return parts


def generator_class_name_or_empty(candidate: Any) -> str:
    """Return the class name of a generator; "" for other objects."""
    for kind, name in (
        (np.random.Generator, "numpy.random.Generator"),
        (np.random.RandomState, "numpy.random.RandomState"),
        (torch.Generator, "torch.Generator"),
        (random.SystemRandom, ""),
        (random.Random, "random.Random"),
    ):
        if isinstance(candidate, kind):
            return name
    return ""


def _read_comparable_state(generator: Any) -> str | bytes | list[Any] | tuple[Any, ...]:
    """Return a value that changes whenever the generator is drawn from."""
    if isinstance(generator, np.random.Generator):
        return repr(generator.bit_generator.state)
    if isinstance(generator, np.random.RandomState):
        return [part.tolist() if hasattr(part, "tolist") else part for part in generator.get_state()]
    if isinstance(generator, torch.Generator):
        return generator.get_state().numpy().tobytes()
    state: tuple[Any, ...] = generator.getstate()
    return state


ALWAYS_CHECKED_BATCHES, CHECK_INTERVAL = 8, 32
"""The first batches are checked, then one in CHECK_INTERVAL: reading the states costs up to 100 us."""
_LIBRARY_NAMES = {"python": "Python's random", "numpy": "numpy.random", "torch": "torch's default generator"}
_READ_STATE: dict[str, Callable[[], Any]] = {
    "python": random.getstate,
    "numpy": lambda: pickle.dumps(np.random.get_state()),
    "torch": lambda: torch.default_generator.get_state().numpy().tobytes(),
}


class UnkeyedDrawMonitor:
    """Notices draws from the global generators that `keyed=` leaves out."""

    def __init__(self, kinds: frozenset[str]) -> None:
        self._kinds = sorted(_LIBRARY_NAMES.keys() - kinds)
        self._keyed = sorted(kinds)
        self._batches = 0
        self._before: dict[str, Any] = {}

    def snapshot_states(self) -> None:
        """Call it before a batch is loaded."""
        if self._kinds:
            self._batches += 1
            is_checked = self._batches <= ALWAYS_CHECKED_BATCHES or self._batches % CHECK_INTERVAL == 0
            self._before = {kind: _READ_STATE[kind]() for kind in self._kinds} if is_checked else {}

    def require_no_draws(self) -> None:
        """Raise DataError if a generator was drawn from since `snapshot_states`."""
        for kind, state in self._before.items():
            if _READ_STATE[kind]() != state:
                library = _LIBRARY_NAMES[kind]
                raise DataError(
                    f"DataLoader(keyed={self._keyed!r}): a sample drew from {library}, which is left out there.",
                    f"Its numbers would depend on the workers: add {kind!r}, or leave out keyed=.",
                )
