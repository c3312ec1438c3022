"""Find the tensors in containers and models. No method that the program may have overridden is called."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from xxhash import xxh3_128_digest

from samerun.record.digests.digest import digest

Named = Iterator[tuple[str, Any]]


def dict_items(mapping: Any) -> list[tuple[Any, Any]]:
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
        inner = dict_items(vars(module).get("_modules"))
        waiting += [(f"{name}.{key}" if name else str(key), each) for key, each in reversed(inner)]


def named_parameters(root: Any) -> Named:
    """As `Module.named_parameters()` gives them."""
    return _named_members(root, "_parameters")


def named_buffers(root: Any) -> Named:
    """As `Module.named_buffers()` gives them."""
    return _named_members(root, "_buffers")


def _named_members(root: Any, dict_name: str) -> Named:
    seen: dict[int, Any] = {}
    for prefix, module in named_modules(root):
        for key, tensor in dict_items(vars(module).get(dict_name)):
            if tensor is not None and id(tensor) not in seen:
                seen[id(tensor)] = tensor
                yield f"{prefix}.{key}" if prefix else str(key), tensor


MAX_DEPTH = 12
LARGE_BYTES = 1 << 26


def digest_tree(value: Any, tensor_type: type, depth: int = 0) -> bytes:
    """Digest of the tensors, arrays and numbers in lists, tuples, dicts (in their order) and dataclasses.

    Other objects count by their type alone: their representation may hold an address.
    """
    kind = type(value)  # not `isinstance`, which asks the value for its class
    if issubclass(kind, tensor_type):
        return digest(value)
    if value is None or issubclass(kind, (bool, int, float, complex, str)):
        return xxh3_128_digest(_builtin_repr(value).encode("utf-8", "surrogatepass"))
    if issubclass(kind, (bytes, bytearray)):
        return xxh3_128_digest(bytes(value))
    if depth >= MAX_DEPTH:
        return xxh3_128_digest(b"deep")
    if issubclass(kind, dict):
        parts = [
            digest_tree(k, tensor_type, depth + 1) + digest_tree(v, tensor_type, depth + 1)
            for k, v in dict_items(value)
        ]
        return xxh3_128_digest(b"dict" + b"".join(parts))
    if issubclass(kind, (list, tuple)):
        items = list.__iter__(value) if issubclass(kind, list) else tuple.__iter__(value)
        return xxh3_128_digest(b"list" + b"".join(digest_tree(v, tensor_type, depth + 1) for v in items))
    if kind.__module__ == "numpy" and hasattr(kind, "tobytes"):
        if value.dtype.hasobject:
            return xxh3_128_digest(b"objects")
        if value.nbytes > LARGE_BYTES and 0 in value.strides:  # broadcast: it may be larger than all memory
            held = value[tuple(slice(1) if stride == 0 else slice(None) for stride in value.strides)]
            return xxh3_128_digest(f"{value.dtype}{value.shape}{held.shape}".encode() + held.tobytes())
        return xxh3_128_digest(f"{value.dtype}{value.shape}".encode() + value.tobytes())
    fields = getattr(kind, "__dataclass_fields__", None)
    if fields is not None:
        return digest_tree([_read_dataclass_field(value, name) for name in fields], tensor_type, depth + 1)
    return xxh3_128_digest(kind.__qualname__.encode())


def _builtin_repr(value: Any) -> str:
    """`repr` of a number or text as its plain type writes it: a class of the program's may write anything."""
    kinds: tuple[Any, ...] = (bool, int, float, complex, str, type(None))
    return str(next(kind for kind in kinds if issubclass(type(value), kind)).__repr__(value))


def _read_dataclass_field(value: Any, name: str) -> Any:
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return None
