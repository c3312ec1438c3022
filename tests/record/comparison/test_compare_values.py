"""Element by element: counts, largest gaps and units in the last place, against a slow reference."""

from __future__ import annotations

import json
import math
import struct
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from samerun.check.evidence import value_differences as checked
from samerun.check.evidence.value_differences import ElementDifference, compare_element_bytes
from samerun.record.watching.kept_tensors import write_readable_tensors

WIDTHS = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
SHAPES = {"float16": (5, 10), "bfloat16": (8, 7), "float32": (8, 23), "float64": (11, 52)}
"""Bits of exponent and of fraction."""


def value(bits: int, kind: str) -> Fraction | None:
    """The number that a pattern of bits stands for; None for NaN and infinities."""
    exponent_bits, fraction_bits = SHAPES[kind]
    fraction = bits & ((1 << fraction_bits) - 1)
    exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1)
    if exponent == (1 << exponent_bits) - 1:
        return None
    bias = (1 << (exponent_bits - 1)) - 1
    mantissa = fraction if exponent == 0 else fraction | 1 << fraction_bits
    scale = Fraction(2) ** (max(exponent, 1) - bias - fraction_bits)
    return mantissa * scale * (-1 if bits >> (exponent_bits + fraction_bits) else 1)


def is_nan(bits: int, kind: str) -> bool:
    fraction = bits & ((1 << SHAPES[kind][1]) - 1)
    return value(bits, kind) is None and fraction != 0


def rank(bits: int, kind: str) -> int:
    """Place among all numbers in order, counted outwards from 0.0 (0) and -0.0 (-1)."""
    sign = 1 << sum(SHAPES[kind])
    return bits if bits < sign else -(bits - sign) - 1


def slow(kind: str, one: list[int], other: list[int]) -> ElementDifference:
    wrong = [(a, b) for a, b in zip(one, other, strict=True) if a != b and not (is_nan(a, kind) and is_nan(b, kind))]
    finite = [(a, b) for a, b in wrong if value(a, kind) is not None and value(b, kind) is not None]
    if not finite:
        return ElementDifference(len(wrong), len(one), None, None)
    gap = max(abs(value(a, kind) - value(b, kind)) for a, b in finite)  # type: ignore[operator]
    ulp = max(abs(rank(a, kind) - rank(b, kind)) for a, b in finite)
    try:
        return ElementDifference(len(wrong), len(one), float(gap), ulp)
    except OverflowError:
        return ElementDifference(len(wrong), len(one), None, ulp)  # larger than any float64, and JSON has no infinity


def packed(bits: list[int], width: int) -> bytes:
    return b"".join(b.to_bytes(width, "little") for b in bits)


def interesting(kind: str) -> st.SearchStrategy[int]:
    """Any bits, and those around both zeros, the infinities and the smallest normal numbers."""
    exponent_bits, fraction_bits = SHAPES[kind]
    sign, inf = 1 << (exponent_bits + fraction_bits), ((1 << exponent_bits) - 1) << fraction_bits
    near = [s + base + d for s in (0, sign) for base in (0, inf, 1 << fraction_bits) for d in (-2, -1, 0, 1, 2)]
    return st.one_of(st.sampled_from([b for b in near if 0 <= b < 2 * sign]), st.integers(0, 2 * sign - 1))


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_floats(kind: str, data: Any) -> None:
    pairs = data.draw(st.lists(st.tuples(interesting(kind), interesting(kind)), min_size=1, max_size=6))
    one, other = [a for a, _ in pairs], [b for _, b in pairs]
    found = compare_element_bytes(f"torch.{kind}", packed(one, WIDTHS[kind]), packed(other, WIDTHS[kind]), len(one))
    expected = slow(kind, one, other)
    assert (found.different, found.total, found.max_ulp) == (expected.different, expected.total, expected.max_ulp)
    if expected.max_abs is None:
        assert found.max_abs is None
    else:
        assert found.max_abs == pytest.approx(expected.max_abs, rel=1e-15)


def of(values: list[Any], dtype: torch.dtype) -> bytes:
    return bytes(torch.tensor(values, dtype=dtype).reshape(-1).view(torch.uint8).tolist())


def compared(one: list[Any], other: list[Any], dtype: torch.dtype) -> ElementDifference:
    return compare_element_bytes(str(dtype), of(one, dtype), of(other, dtype), len(one))


@pytest.mark.parametrize(
    "dtype",
    [torch.float16, torch.bfloat16, torch.float32, torch.float64],
    ids=str,
)
def test_neighbours_are_one_apart(dtype: torch.dtype) -> None:
    one = torch.tensor([1.0, -1.0, 0.0], dtype=dtype)
    for start in one:
        up = torch.nextafter(start, torch.tensor(9.0, dtype=dtype))
        assert compared([start], [up], dtype).max_ulp == 1
    assert compared([0.0], [-0.0], dtype) == ElementDifference(1, 1, 0.0, 1)


def test_infinities_and_nans() -> None:
    inf, nan = math.inf, math.nan
    assert compared([nan, 1.0], [nan, 1.0], torch.float32) == ElementDifference(0, 2, None, None)
    assert compare_element_bytes(
        "torch.float32", struct.pack("<I", 0x7FC00000), struct.pack("<I", 0xFFC00001), 1
    ) == ElementDifference(0, 1, None, None)
    assert compared([nan, inf], [1.0, -inf], torch.float32) == ElementDifference(2, 2, None, None)
    assert compared([inf, 1.0], [inf, 3.0], torch.float32).max_abs == 2.0


@pytest.mark.parametrize(
    ("dtype", "one", "other", "gap"),
    [
        (torch.int64, [-(1 << 63), 1], [(1 << 63) - 1, 1], float((1 << 64) - 1)),
        (torch.int32, [5, 6], [5, -6], 12.0),
        (torch.int8, [-128, 0], [127, 0], 255.0),
        (torch.uint8, [0, 3], [200, 3], 200.0),
        (torch.uint16, [0, 3], [60000, 3], 60000.0),
        (torch.bool, [True, False], [False, False], 1.0),
    ],
    ids=str,
)
def test_whole_numbers(dtype: torch.dtype, one: list[int], other: list[int], gap: float) -> None:
    assert compared(one, other, dtype) == ElementDifference(1, 2, gap, None)
    assert compared(one, one, dtype) == ElementDifference(0, 2, 0.0, None)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_complex_numbers_are_counted(dtype: torch.dtype) -> None:
    assert compared([1 + 1j, 2, 3], [1 + 2j, 2, 4], dtype) == ElementDifference(2, 3, None, None)


LINE = 7


def compare_kept(a: Path, b: Path) -> ElementDifference | None:
    return checked.compare_first_differing_saved_tensors(a, b, LINE)


def kept(path: Path, *tensors: tuple[str, list[int], bytes]) -> Path:
    heads = [{"dtype": dtype, "shape": shape, "bytes": len(raw)} for dtype, shape, raw in tensors]
    head = json.dumps({"operator": "x", "line": LINE, "tensors": heads}).encode()
    path.write_bytes(head + b"\n" + b"".join(raw for _, _, raw in tensors))
    return path


def test_kept_files(tmp_path: Path) -> None:
    ones, twos = of([1.0, 1.0], torch.float32), of([1.0, 2.0], torch.float32)
    same = ("torch.float32", [2], ones)
    a = kept(tmp_path / "a", same, same)
    assert compare_kept(a, kept(tmp_path / "b", same, ("torch.float32", [2], twos))) == ElementDifference(
        1, 2, 1.0, 1 << 23
    )
    assert compare_kept(a, a) is None
    assert compare_kept(a, kept(tmp_path / "c", ("torch.float32", [1, 2], ones))) is None
    assert compare_kept(a, tmp_path / "missing") is None
    assert (
        checked.compare_first_differing_saved_tensors(
            a, kept(tmp_path / "d", same, ("torch.float32", [2], twos)), LINE + 1
        )
        is None
    )
    (tmp_path / "broken").write_bytes(b"not json\n")
    assert compare_kept(a, tmp_path / "broken") is None


def test_a_scalar_and_an_empty_tensor(tmp_path: Path) -> None:
    one, two = of([1.0], torch.float32), of([2.0], torch.float32)
    a = kept(tmp_path / "a", ("torch.float32", [0], b""), ("torch.float32", [], one))
    b = kept(tmp_path / "b", ("torch.float32", [0], b""), ("torch.float32", [], two))
    assert compare_kept(a, b) == ElementDifference(1, 1, 1.0, 1 << 23)


def test_values_of_any_geometry_are_kept(tmp_path: Path) -> None:
    """A contiguous tensor of one element may have any stride; an expanded one may be larger than all memory."""
    z = torch.randn(3, dtype=torch.complex64)
    wide = torch.randn(4, 3)
    tensors = [
        torch.randn(5, 1)[:1].as_strided((1,), (5,)), torch.ones(1).as_strided((1, 1), (7, 9)), torch.tensor(1.5),
        wide.t(), wide[::2, 1:], torch.randn(3).expand(5, 3), z.conj(), z.conj().imag, torch.zeros(0, 3),
        torch.nn.Parameter(wide), wide.bfloat16(), wide > 0,
    ]  # fmt: skip
    left_out = [torch.ones(1).expand(10**12), torch.empty(3, device="meta"), released()]
    path = tmp_path / "kept"
    write_readable_tensors(str(path), [*tensors, *left_out], {})
    head, _, raw = path.read_bytes().partition(b"\n")
    heads = json.loads(head)["tensors"]
    assert [(one["dtype"], tuple(one["shape"])) for one in heads] == [(str(t.dtype), tuple(t.shape)) for t in tensors]
    at = 0
    for one, tensor in zip(heads, tensors, strict=True):
        plain = tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
        held = torch.frombuffer(bytearray(raw[at : at + one["bytes"]]), dtype=plain.dtype) if one["bytes"] else None
        assert held is None or torch.equal(held, plain.reshape(-1))
        at += one["bytes"]
    assert at == len(raw)


def released() -> torch.Tensor:
    tensor = torch.ones(100)
    tensor.untyped_storage().resize_(0)
    return tensor
