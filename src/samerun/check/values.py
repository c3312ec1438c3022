"""Compare the kept tensors of two runs element by element."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_INTEGERS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_FLOATS = {"torch.float16": np.float16, "torch.float32": np.float32, "torch.float64": np.float64}


@dataclass(frozen=True)
class Elements:
    """How two tensors differ. `max_ulp` counts representable numbers in between; None for other dtypes."""

    different: int
    total: int
    max_abs: float | None
    max_ulp: int | None


def read_kept(path: Path) -> list[tuple[str, list[int], bytes]]:
    """(dtype, shape, bytes) of every tensor in a file written by `samerun.record.keep`."""
    with open(path, "rb") as file:
        head = json.loads(file.readline())
        return [(t["dtype"], t["shape"], file.read(t["bytes"])) for t in head["tensors"]]


def kept_line(path: Path) -> int:
    with open(path, "rb") as file:
        return int(json.loads(file.readline())["line"])


def compare_kept(a: Path, b: Path, line: int) -> Elements | None:
    """The first tensor that differs, or None when they cannot be compared or none differs.

    Both must come from the operator at `line`: a program that differs by itself may keep another one.
    """
    try:
        if any(kept_line(path) != line for path in (a, b)):
            return None
        pairs = zip(read_kept(a), read_kept(b), strict=False)
    except (OSError, ValueError, KeyError):
        return None
    for (dtype, shape, one), (dtype_b, shape_b, other) in pairs:
        if (dtype, shape) != (dtype_b, shape_b) or len(one) != len(other):
            return None
        found = compare_bytes(dtype, one, other, int(np.prod(shape)) if shape else 1)
        if found.different:
            return found
    return None


def compare_bytes(dtype: str, one: bytes, other: bytes, count: int) -> Elements:
    """Compare raw elements; a NaN equals a NaN."""
    width = max(1, len(one) // max(1, count))
    if dtype == "torch.bfloat16":
        a, b = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16 for raw in (one, other))
        return _floats(a.view(np.float32), b.view(np.float32), np.float32, 1 << 16)
    if dtype in _FLOATS:
        kind = _FLOATS[dtype]
        return _floats(np.frombuffer(one, kind), np.frombuffer(other, kind), kind, 1)
    if width in _INTEGERS and not dtype.startswith("torch.complex"):
        a, b = (np.frombuffer(raw, _INTEGERS[width]) for raw in (one, other))
        wrong = a != b
        gap = max((abs(int(x) - int(y)) for x, y in zip(a[wrong][:100000], b[wrong][:100000], strict=True)), default=0)
        return Elements(int(wrong.sum()), count, float(gap), None)
    rows = [np.frombuffer(raw, np.uint8).reshape(count, width) for raw in (one, other)]
    return Elements(int((rows[0] != rows[1]).any(axis=1).sum()), count, None, None)


def _floats(a: Any, b: Any, kind: Any, unit: int) -> Elements:
    bits = _INTEGERS[np.dtype(kind).itemsize]
    wrong = (a.view(bits) != b.view(bits)) & ~(np.isnan(a) & np.isnan(b))
    x, y = a[wrong], b[wrong]
    finite = np.isfinite(x) & np.isfinite(y)
    if not finite.any():
        return Elements(int(wrong.sum()), a.size, None, None)
    gap = float(np.max(np.abs(x[finite].astype(np.float64) - y[finite].astype(np.float64))))
    ulp = max(abs(p - q) for p, q in zip(_ordered(x[finite], bits), _ordered(y[finite], bits), strict=True))
    return Elements(int(wrong.sum()), a.size, gap, int(ulp) // unit)


def _ordered(values: Any, bits: Any) -> list[int]:
    """Whole numbers in the order of the floats, neighbours one apart; -0.0 and 0.0 are one apart too."""
    top = 1 << (np.dtype(bits).itemsize * 8 - 1)
    return [int(v) if v >= 0 else -(int(v) + top) - 1 for v in values.view(bits)[:1000000].tolist()]
