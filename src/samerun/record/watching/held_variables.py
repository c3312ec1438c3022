"""Save the values of a variable in one run, and give them to the same variable in another.

If a difference between the two runs then goes, it came through this variable (decision 58). Values are saved as Python
literals, hit by hit of the variable's line. Objects are not saved: a list of modules in another order is put in order
by the digests of its members, and an object with other attributes gets the saved ones.
"""

from __future__ import annotations

import ast
import math
import os
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from xxhash import xxh3_128_hexdigest

from samerun.record.config import HeldVariables
from samerun.record.digests.variable_digests import MODULES_WITH_VALUES, digest_variable

NOT_HELD = "not-held"
"""A file in the folder of saved values: some value could not be given to its variable."""
MAX_VALUES = 200_000
"""The most hits, and the most parts of one value, that are saved."""
MAX_ARRAY_BYTES = 1 << 20
MAX_DEPTH, POOL_DEPTH, MAX_POOL = 6, 4, 20_000
SEQUENCES: dict[str, Any] = {"list": list, "tuple": tuple, "deque": deque}
SETS: dict[str, Any] = {"set": set, "frozenset": frozenset}


class CannotHold(Exception):
    """A value that is too large, or that this process has nothing like."""


class VariableHolder:
    """The variables that are saved or held in this process. `role`: gives its role, which is known at its first line
    only: each rank has values of its own."""

    def __init__(self, held: HeldVariables, role: Callable[[], str]) -> None:
        self.keep, self.folder, self.process = held.keep, Path(held.folder), os.getpid()
        self.role = role
        self.names: dict[tuple[str, int], list[str]] = {}
        """(file, line) -> its variables."""
        for file, line, name in held.variables:
            self.names.setdefault((file, line), []).append(name)
        self.lines: dict[Path, list[str]] = {}
        self.hits: Counter[Path] = Counter()

    def update(
        self, location: tuple[str, int], function_prefix: str, values: Mapping[str, Any], more_object_roots: Any
    ) -> dict[str, Any]:
        """After a hit of a line: saves the values of its variables, or returns those that they have to get.

        `function_prefix`: what precedes a name in the list of variables, for the parameters of a function: "function(".
        `more_object_roots`: where objects may be found as well.
        """
        found: dict[str, Any] = {}
        for listed_name in self.names.get(location, ()) if os.getpid() == self.process else ():
            if function_prefix and not listed_name.startswith(function_prefix):
                continue
            name = listed_name[len(function_prefix) : -1] if function_prefix else listed_name
            if name not in values:
                continue
            path = self.folder / xxh3_128_hexdigest(f"{self.role()}:{location[0]}:{location[1]}:{listed_name}".encode())
            self.hits[path] += 1
            if self.keep:
                self._save(path, name, values)
                continue
            if path not in self.lines:
                self.lines[path] = _read_lines(path)
            if self.hits[path] <= len(self.lines[path]):
                try:
                    digest, recipe = ast.literal_eval(self.lines[path][self.hits[path] - 1])
                    if digest != digest_variable(values[name]):
                        found[name] = rebuild(recipe, values[name], ObjectPool(values, more_object_roots))
                        if digest_variable(found[name]) != digest:
                            raise CannotHold(name)
                except (CannotHold, ValueError, SyntaxError, TypeError, RecursionError):
                    (self.folder / NOT_HELD).touch()
        return found

    def _save(self, path: Path, name: str, values: Mapping[str, Any]) -> None:
        if self.hits[path] > MAX_VALUES:
            return
        try:
            text = repr((digest_variable(values[name]), describe(values[name], [0])))
        except (CannotHold, RecursionError):
            text = "None"
        with open(path, "a", encoding="utf-8") as file:
            file.write(text + "\n")


def _read_lines(path: Path) -> list[str]:
    """The lines of a file; none where it is not there, because the other run never came to the variable."""
    with suppress(OSError):
        return path.read_text(encoding="utf-8").splitlines()
    return []


def describe(value: Any, count: list[int], depth: int = 0) -> tuple[Any, ...]:
    """A value as a literal, from which `rebuild` makes it again. Raises CannotHold where it is too large."""
    count[0] += 1
    if count[0] > MAX_VALUES:
        raise CannotHold
    kind = type(value).__name__
    if value is None or type(value) in (bool, int, str, bytes):
        return "value", value
    if type(value) is float:
        return "float", value.hex()
    if depth > MAX_DEPTH:
        return ("any",)
    if type(value) in (list, tuple, deque, set, frozenset):
        return kind, [describe(each, count, depth + 1) for each in value]
    if type(value) is dict:
        return kind, [(describe(k, count, depth + 1), describe(v, count, depth + 1)) for k, v in value.items()]
    if type(value).__module__ in MODULES_WITH_VALUES:
        made_by, arguments = value.__reduce__()[:2]
        return "made", made_by.__module__, made_by.__name__, [describe(each, count, depth + 1) for each in arguments]
    if is_plain_array_or_scalar(value) and value.nbytes <= MAX_ARRAY_BYTES:
        return "array", value.dtype.str, value.shape, value.tobytes()
    if is_exact_cpu_tensor_without_grad(value) and value.nbytes <= MAX_ARRAY_BYTES:
        return "tensor", str(value.dtype).removeprefix("torch."), tuple(value.shape), bytes_of_tensor(value)
    held = getattr(value, "__dict__", None)
    attributes = None
    if type(held) is dict and not isinstance(value, type):  # of a module only what it has besides its tensors
        is_module = "_parameters" in held
        names = [name for name in held if type(name) is str and not (is_module and name.startswith("_"))]
        attributes = [(name, describe(held[name], count, depth + 1)) for name in names]
    return "object", digest_variable(value), kind, attributes


def rebuild(recipe: Any, current: Any, pool: ObjectPool) -> Any:
    """The described value. Containers and objects are changed in place, so that all who hold them see it.

    Raises CannotHold for an object that is not there.
    """
    kind: str = recipe[0]
    parts: Any = recipe[1] if len(recipe) > 1 else None
    if kind == "value":
        return parts
    if kind == "float":
        return float.fromhex(parts) if parts not in ("nan", "-nan") else math.nan
    if kind == "any":
        return current
    if kind in SEQUENCES:
        old = list(current) if type(current).__name__ == kind else []
        items = [rebuild(each, old[n] if n < len(old) else None, pool) for n, each in enumerate(parts)]
        if kind == "tuple" or type(current).__name__ != kind:
            return SEQUENCES[kind](items)
        current.clear()
        current.extend(items)
        return current
    if kind in SETS:
        members = SETS[kind](rebuild(each, None, pool) for each in parts)
        return current if type(current).__name__ == kind and members == current else members
    if kind == "dict":
        known = current if type(current) is dict else {}
        pairs = {}
        for key_recipe, value_recipe in parts:
            key = rebuild(key_recipe, None, pool)
            pairs[key] = rebuild(value_recipe, known.get(key), pool)
        known.clear()
        known.update(pairs)
        return known
    if kind == "made" and parts in MODULES_WITH_VALUES:
        return getattr(sys.modules[parts], recipe[2])(*(rebuild(each, None, pool) for each in recipe[3]))
    if kind == "array":
        numpy: Any = sys.modules["numpy"]
        array = numpy.frombuffer(recipe[3], recipe[1]).reshape(recipe[2]).copy()
        return array if recipe[2] or type(current).__name__ == "ndarray" else array[()]
    if kind == "tensor":
        torch: Any = sys.modules["torch"]
        dtype = getattr(torch, parts)
        flat = torch.frombuffer(bytearray(recipe[3]), dtype=dtype) if recipe[3] else torch.empty(0, dtype=dtype)
        tensor = flat.reshape(recipe[2])
        if is_exact_cpu_tensor_without_grad(current) and (current.dtype, current.shape) == (tensor.dtype, tensor.shape):
            return current.copy_(tensor)
        return tensor.clone()
    return find_object_or_restore_attributes(recipe, current, pool)


def find_object_or_restore_attributes(recipe: Any, current: Any, pool: ObjectPool) -> Any:
    """An object that is there and has the digest, or the present one with the described attributes."""
    _, digest, kind, attributes = recipe
    if digest_variable(current) == digest:
        return current
    other = pool.find_live_object_or_none(digest)
    if other is not None:
        return other
    held = getattr(current, "__dict__", None)
    if type(current).__name__ != kind or attributes is None or type(held) is not dict:
        raise CannotHold(kind)
    for name, described in attributes:
        held[name] = rebuild(described, held.get(name), pool)
    return current


def is_plain_array_or_scalar(value: Any) -> bool:
    """Whether a value is an array or a scalar of NumPy that consists of bytes."""
    return type(value).__module__ == "numpy" and hasattr(value, "tobytes") and not value.dtype.hasobject


def is_exact_cpu_tensor_without_grad(value: Any) -> bool:
    """Whether a value is a tensor in the memory of this process that is not part of a graph of gradients."""
    torch = sys.modules.get("torch")
    return (
        torch is not None
        and type(value) is torch.Tensor
        and value.device.type == "cpu"
        and value.layout is torch.strided
        and not (value.requires_grad or value.is_quantized or value.is_conj() or value.is_neg())
    )


def bytes_of_tensor(tensor: Any) -> bytes:
    torch: Any = sys.modules["torch"]
    return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())


class ObjectPool:
    """Objects that a frame can reach, by their digests; looked at only when one is asked for."""

    def __init__(self, *roots: Any) -> None:
        self.roots = roots
        self.objects: dict[bytes, Any] | None = None

    def find_live_object_or_none(self, digest: bytes) -> Any:
        if self.objects is None:
            self.objects = {}
            seen: set[int] = set()
            for root in self.roots:
                for each in iter_reachable_instances(root, seen):
                    with suppress(Exception):  # a class of the user's may not let itself be read
                        self.objects.setdefault(digest_variable(each), each)
        return self.objects.get(digest)


def iter_reachable_instances(value: Any, seen: set[int], depth: int = 0) -> Iterator[Any]:
    """What can be had from a value through containers and attributes, without plain values."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, type)) or id(value) in seen:
        return
    if type(value).__name__ in ("module", "function") or len(seen) >= MAX_POOL:
        return
    seen.add(id(value))
    if isinstance(value, Mapping):
        inner: list[Any] = [*value.keys(), *value.values()] if depth < POOL_DEPTH else []
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        inner = list(value) if depth < POOL_DEPTH else []
    else:
        yield value
        held = getattr(value, "__dict__", None)
        inner = list(held.values()) if type(held) is dict and depth < POOL_DEPTH else []
    for each in inner:
        yield from iter_reachable_instances(each, seen, depth + 1)
