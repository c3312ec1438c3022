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


def read_saved_tensors(path: Path) -> list[tuple[str, list[int], bytes]]:
    """(dtype, shape, bytes) of every tensor in a file written by `samerun.record.watching.kept_tensors`."""
    with open(path, "rb") as file:
        head = json.loads(file.readline())
        return [(t["dtype"], t["shape"], file.read(t["bytes"])) for t in head["tensors"]]


def read_operator_line(path: Path) -> int:
    with open(path, "rb") as file:
        return int(json.loads(file.readline())["line"])


def compare_saved_tensors(a: Path, b: Path, line: int) -> Elements | None:
    """The first tensor that differs, or None when they cannot be compared or none differs.

    Both must come from the operator at `line`: a program that differs by itself may keep another one.
    """
    try:
        if any(read_operator_line(path) != line for path in (a, b)):
            return None
        pairs = zip(read_saved_tensors(a), read_saved_tensors(b), strict=False)
    except (OSError, ValueError, KeyError):
        return None
    for (dtype, shape, one), (dtype_b, shape_b, other) in pairs:
        if (dtype, shape) != (dtype_b, shape_b) or len(one) != len(other):
            return None
        found = compare_raw_elements(dtype, one, other, int(np.prod(shape)) if shape else 1)
        if found.different:
            return found
    return None


def compare_raw_elements(dtype: str, one: bytes, other: bytes, count: int) -> Elements:
    """Compare raw elements; a NaN equals a NaN."""
    width = max(1, len(one) // max(1, count))
    if dtype == "torch.bfloat16":
        return _compare_floats(np.frombuffer(one, np.int16), np.frombuffer(other, np.int16), _bfloat16_bits_to_float32)
    if dtype in _FLOATS:
        kind: Any = _FLOATS[dtype]
        bits = _INTEGERS[width]
        return _compare_floats(np.frombuffer(one, bits), np.frombuffer(other, bits), lambda raw: raw.view(kind))
    if width in _INTEGERS and dtype.startswith(("torch.int", "torch.uint", "torch.bool")):
        kind = np.dtype(_INTEGERS[width] if dtype.startswith("torch.int") else f"u{width}")
        a, b = (np.frombuffer(raw, kind) for raw in (one, other))
        wrong = a != b
        gap = (
            int(np.where(a > b, _unsigned_difference(a, b), _unsigned_difference(b, a))[wrong].max())
            if wrong.any()
            else 0
        )
        return Elements(int(wrong.sum()), count, float(gap), None)
    rows = [np.frombuffer(raw, np.uint8).reshape(count, width) for raw in (one, other)]
    return Elements(int((rows[0] != rows[1]).any(axis=1).sum()), count, None, None)


def to_float64(dtype: str, raw: bytes) -> Any:
    """The values as float64; None for dtypes that are no floats."""
    if dtype == "torch.bfloat16":
        return _bfloat16_bits_to_float32(np.frombuffer(raw, np.int16)).astype(np.float64)
    return np.frombuffer(raw, _FLOATS[dtype]).astype(np.float64) if dtype in _FLOATS else None


def _unsigned_difference(high: Any, low: Any) -> Any:
    """high - low as unsigned numbers, right where high is the larger one."""
    return high.astype(np.int64).view(np.uint64) - low.astype(np.int64).view(np.uint64)


def _bfloat16_bits_to_float32(bits: Any) -> Any:
    """bfloat16 as float32."""
    return (bits.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _compare_floats(a: Any, b: Any, values_of: Any) -> Elements:
    """Compare floats given as the signed integers of their bits."""
    x, y = values_of(a), values_of(b)
    wrong = (a != b) & ~(np.isnan(x) & np.isnan(y))
    finite = wrong & np.isfinite(x) & np.isfinite(y)
    if not finite.any():
        return Elements(int(wrong.sum()), a.size, None, None)
    with np.errstate(over="ignore"):
        gap = float(np.max(np.abs(x[finite].astype(np.float64) - y[finite].astype(np.float64))))
    p, q = _to_ordered_integers(a[finite]), _to_ordered_integers(b[finite])
    ulp = int(np.where(p > q, _unsigned_difference(p, q), _unsigned_difference(q, p)).max())
    return Elements(int(wrong.sum()), a.size, gap if np.isfinite(gap) else None, ulp)


def _to_ordered_integers(bits: Any) -> Any:
    """Integers in the order of the floats, neighbours one apart; -0.0 and 0.0 are one apart too."""
    top = np.int64(np.iinfo(bits.dtype).min)
    wide = bits.astype(np.int64)
    return np.where(wide >= 0, wide, -(wide - top) - 1)
