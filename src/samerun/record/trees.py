"""Find the tensors in whatever a program hands around."""

from __future__ import annotations

from typing import Any

from xxhash import xxh3_128_digest

from samerun.record.digest import digest

MAX_DEPTH = 12
LARGE_BYTES = 1 << 26


def tree_digest(value: Any, tensor_type: type, depth: int = 0) -> bytes:
    """Digest of the tensors, arrays and numbers in lists, tuples, dicts (in their order) and dataclasses.

    Other objects count by their type alone: their representation may hold an address.
    """
    if isinstance(value, tensor_type):
        return digest(value)
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return xxh3_128_digest(repr(value).encode("utf-8", "surrogatepass"))
    if isinstance(value, (bytes, bytearray)):
        return xxh3_128_digest(bytes(value))
    if depth >= MAX_DEPTH:
        return xxh3_128_digest(b"deep")
    if isinstance(value, dict):
        parts = [
            tree_digest(k, tensor_type, depth + 1) + tree_digest(v, tensor_type, depth + 1) for k, v in value.items()
        ]
        return xxh3_128_digest(b"dict" + b"".join(parts))
    if isinstance(value, (list, tuple)):
        return xxh3_128_digest(b"list" + b"".join(tree_digest(v, tensor_type, depth + 1) for v in value))
    if type(value).__module__ == "numpy" and hasattr(value, "tobytes"):
        if value.dtype.hasobject:
            return xxh3_128_digest(b"objects")
        if value.nbytes > LARGE_BYTES and 0 in value.strides:  # broadcast: it may be larger than all memory
            held = value[tuple(slice(1) if stride == 0 else slice(None) for stride in value.strides)]
            return xxh3_128_digest(f"{value.dtype}{value.shape}{held.shape}".encode() + held.tobytes())
        return xxh3_128_digest(f"{value.dtype}{value.shape}".encode() + value.tobytes())
    fields = getattr(value, "__dataclass_fields__", None)
    if fields is not None:
        return tree_digest([getattr(value, name, None) for name in fields], tensor_type, depth + 1)
    return xxh3_128_digest(type(value).__qualname__.encode())
