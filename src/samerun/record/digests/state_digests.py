"""Digests of what is not one tensor: containers and models, and the states of Python's and NumPy's generators.

The tensors in containers and models are found without calling a method that the program may have overridden.
"""

from __future__ import annotations

import ctypes
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from xxhash import xxh3_128_digest

from samerun.record.digests.digest import digest

Named = Iterator[tuple[str, Any]]


def dict_items_bypassing_overrides(mapping: Any) -> list[tuple[Any, Any]]:
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
        inner = dict_items_bypassing_overrides(vars(module).get("_modules"))
        waiting += [(f"{name}.{key}" if name else str(key), each) for key, each in reversed(inner)]


def named_parameters(root: Any) -> Named:
    """As `Module.named_parameters()` gives them, without those of lazy modules that have no shape yet."""
    return _named_members(root, "_parameters")


def named_buffers(root: Any) -> Named:
    """As `Module.named_buffers()` gives them."""
    return _named_members(root, "_buffers")


def _named_members(root: Any, dict_name: str) -> Named:
    from torch.nn.parameter import is_lazy

    seen: dict[int, Any] = {}
    for prefix, module in named_modules(root):
        for key, tensor in dict_items_bypassing_overrides(vars(module).get(dict_name)):
            if tensor is not None and id(tensor) not in seen and not is_lazy(tensor):
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
        return xxh3_128_digest(_repr_of_plain_value(value).encode("utf-8", "surrogatepass"))
    if issubclass(kind, (bytes, bytearray)):
        return xxh3_128_digest(bytes(value))
    if depth >= MAX_DEPTH:
        return xxh3_128_digest(b"deep")
    if issubclass(kind, dict):
        parts = [
            digest_tree(k, tensor_type, depth + 1) + digest_tree(v, tensor_type, depth + 1)
            for k, v in dict_items_bypassing_overrides(value)
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
        return digest_tree([_read_dataclass_field_or_none(value, name) for name in fields], tensor_type, depth + 1)
    return xxh3_128_digest(kind.__qualname__.encode())


def _repr_of_plain_value(value: Any) -> str:
    """`repr` of a number or text as its plain type writes it: a class of the program's may write anything."""
    kinds: tuple[Any, ...] = (bool, int, float, complex, str, type(None))
    return str(next(kind for kind in kinds if issubclass(type(value), kind)).__repr__(value))


def _read_dataclass_field_or_none(value: Any, name: str) -> Any:
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return None


OBJECT_HEADER = object.__basicsize__
"""Bytes in front of an object's own fields: the reference count changes without the state."""


def digest_python_random_state(state: Any) -> bytes:
    """Of what `random.getstate()` gives. `hash` of whole numbers does not depend on the hash seed."""
    version, words, gauss = state
    return xxh3_128_digest(f"{version}{hash(words)}{gauss}".encode())


def digest_numpy_random_state(state: dict[str, Any]) -> bytes:
    """Of what `numpy.random.get_state(legacy=False)` gives."""
    held = state["state"]
    key = held["key"].tobytes() if "key" in held else repr(held).encode()
    return xxh3_128_digest(key + repr((held.get("pos"), state.get("gauss"))).encode())


class MemoryCachedDigest:
    """A state's digest, computed again only where the memory that holds the state has changed.

    A library takes 40 to 150 microseconds to give a state of 2,500 bytes, which is a tenth of a small model's step;
    comparing those bytes takes two. Comparing more bytes than the state is harmless: the digest itself always comes
    from the library.
    """

    def __init__(
        self, memory_owners: list[Any], addresses_and_byte_counts: list[tuple[int, int]], compute: Callable[[], bytes]
    ) -> None:
        self.held = memory_owners
        """Objects in whose memory the regions lie."""
        self.regions = addresses_and_byte_counts
        """(address, bytes)"""
        self.compute = compute
        self.seen: list[bytes] = []
        self.digest = b""

    def read_or_recompute(self) -> bytes:
        seen = self.copy_regions()
        if seen != self.seen:
            self.digest = self.compute()
            # Another thread may have drawn in between: then the bytes do not belong to the digest.
            self.seen = seen if seen == self.copy_regions() else []
        return self.digest

    def copy_regions(self) -> list[bytes]:
        return [ctypes.string_at(address, size) for address, size in self.regions]


def address_and_size_of_object_fields(instance: Any) -> tuple[int, int]:
    """(address, bytes) of the fields that an object of a type in C holds; CPython only."""
    return id(instance) + OBJECT_HEADER, type(instance).__basicsize__ - OBJECT_HEADER


def make_python_random_state_digester(module: Any) -> Callable[[], bytes]:
    """What digests the state of the `random` module's generator."""

    def compute() -> bytes:
        return digest_python_random_state(module.getstate())

    instance: Any = getattr(module, "_inst", None)
    if type(instance) is not module.Random or not hasattr(instance, "gauss_next"):
        return compute
    words = MemoryCachedDigest([instance], [address_and_size_of_object_fields(instance)], compute)
    gauss: Any = None

    def read() -> bytes:
        nonlocal gauss
        if instance.gauss_next is not gauss:  # an attribute in a dictionary: not among the fields in C
            gauss, words.seen = instance.gauss_next, []
        return words.read_or_recompute()

    return read


def make_numpy_random_state_digester(module: Any) -> Callable[[], bytes]:
    """What digests the state of `numpy.random`'s generator."""

    def compute() -> bytes:
        return digest_numpy_random_state(module.get_state(legacy=False))

    legacy = find_numpy_global_generator()
    twister = module.MT19937
    cached: MemoryCachedDigest | None = None

    def read() -> bytes:
        nonlocal cached
        bits = legacy._bit_generator
        if type(bits) is not twister:  # numpy.random.set_bit_generator
            return compute()
        if cached is None or cached.held[1] is not bits:
            state = bits.ctypes.state_address, 624 * 4 + 4  # the words and the position among them
            cached = MemoryCachedDigest([legacy, bits], [address_and_size_of_object_fields(legacy), state], compute)
        return cached.read_or_recompute()

    return read if hasattr(legacy, "_bit_generator") else compute


def find_numpy_global_generator() -> Any:
    """The object whose methods the functions of `numpy.random` are; None where it is not found."""
    return getattr(sys.modules.get("numpy.random.mtrand"), "_rand", None)
