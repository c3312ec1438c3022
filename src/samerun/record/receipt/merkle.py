"""Merkle trees over rows of equal size: compare two tables, and find the first difference, without reading all rows.

A leaf is BLAKE2b-256 of `FAN_OUT` rows, any other node of `FAN_OUT` nodes of the level below. The root digest also
covers the number and the size of the rows, so tables of different shapes have different roots.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import pairwise

FAN_OUT = 1024
NODE_BYTES = 32


def build_levels(rows: memoryview | bytes, row_bytes: int) -> list[bytes]:
    """The levels from the lowest up; the last has one node, or none if there are no rows."""
    levels = [_digest_level(rows, row_bytes * FAN_OUT)]
    while len(levels[-1]) > NODE_BYTES:
        levels.append(_digest_level(levels[-1], NODE_BYTES * FAN_OUT))
    return levels


def root_digest(levels: list[bytes], count: int, row_bytes: int) -> str:
    """64 hex digits."""
    return blake2b(f"{count} {row_bytes} ".encode() + levels[-1], digest_size=32).hexdigest()


def level_sizes(count: int) -> list[int]:
    """Size in bytes of each level of a table with `count` rows."""
    sizes = [-(-count // FAN_OUT) * NODE_BYTES]
    while sizes[-1] > NODE_BYTES:
        sizes.append(-(-sizes[-1] // (NODE_BYTES * FAN_OUT)) * NODE_BYTES)
    return sizes


def is_consistent(levels: list[bytes]) -> bool:
    """Whether each level holds the digests of the level below."""
    return all(_digest_level(low, NODE_BYTES * FAN_OUT) == high for low, high in pairwise(levels))


def find_first_differing_leaf(a: list[bytes], b: list[bytes]) -> int | None:
    """Number of the first leaf that differs, found from the top down; None if there is none.

    Trees of different heights cannot be walked together: their leaves are compared directly.
    """
    if len(a) != len(b):
        return _first_differing_node(a[0], b[0], 0, max(len(a[0]), len(b[0])))
    begin, end = 0, max(len(a[-1]), len(b[-1]))
    for high, low in zip(reversed(a), reversed(b), strict=True):
        at = _first_differing_node(high, low, begin, end)
        if at is None:
            return None
        begin, end = at * FAN_OUT * NODE_BYTES, (at + 1) * FAN_OUT * NODE_BYTES
    return at


def _first_differing_node(a: bytes, b: bytes, begin: int, end: int) -> int | None:
    for at in range(begin, min(end, max(len(a), len(b))), NODE_BYTES):
        if a[at : at + NODE_BYTES] != b[at : at + NODE_BYTES]:
            return at // NODE_BYTES
    return None


def _digest_level(data: memoryview | bytes, size: int) -> bytes:
    return b"".join(blake2b(part, digest_size=NODE_BYTES).digest() for part in _split_into_slices(data, size))


def _split_into_slices(data: memoryview | bytes, size: int) -> Iterator[memoryview]:
    view = memoryview(data)
    for at in range(0, len(view), size):
        yield view[at : at + size]
