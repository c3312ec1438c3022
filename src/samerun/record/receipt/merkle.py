"""A tree of digests over rows of equal size: whether two tables agree, and where they first do not.

A node of the lowest level stands for `FAN_OUT` rows, every other node for `FAN_OUT` nodes of the level below; it is
BLAKE2b-256 of what it stands for. The root is BLAKE2b-256 of the number of rows, the bytes of a row, and the
top level: so tables of other shapes have other roots.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import pairwise

FAN_OUT = 1024
NODE_BYTES = 32


def build_levels(rows: memoryview | bytes, row_bytes: int) -> list[bytes]:
    """The levels from the lowest up; the last has one node, or none where there are no rows."""
    levels = [_digest_level(rows, row_bytes * FAN_OUT)]
    while len(levels[-1]) > NODE_BYTES:
        levels.append(_digest_level(levels[-1], NODE_BYTES * FAN_OUT))
    return levels


def root_digest(levels: list[bytes], count: int, row_bytes: int) -> str:
    """64 hex digits."""
    return blake2b(f"{count} {row_bytes} ".encode() + levels[-1], digest_size=32).hexdigest()


def level_sizes(count: int) -> list[int]:
    """Bytes of each level of a table of so many rows."""
    sizes = [-(-count // FAN_OUT) * NODE_BYTES]
    while sizes[-1] > NODE_BYTES:
        sizes.append(-(-sizes[-1] // (NODE_BYTES * FAN_OUT)) * NODE_BYTES)
    return sizes


def is_consistent(levels: list[bytes]) -> bool:
    """Whether each level above the lowest is the digest of the one below."""
    return all(_digest_level(low, NODE_BYTES * FAN_OUT) == high for low, high in pairwise(levels))


def first_differing_leaf(a: list[bytes], b: list[bytes]) -> int | None:
    """The first node of the lowest level that differs, going down from the top; None where there is none.

    Tables of another length: looked at as far as the shorter one goes.
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
    return b"".join(blake2b(part, digest_size=NODE_BYTES).digest() for part in _slices(data, size))


def _slices(data: memoryview | bytes, size: int) -> Iterator[memoryview]:
    view = memoryview(data)
    for at in range(0, len(view), size):
        yield view[at : at + size]
