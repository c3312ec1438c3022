"""Class S: native kernels give the bits of the reference; the reference does what the specification says."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from portable_values import NATIVE, assert_same_bits, at_level, values

from samerun.base.errors import SamerunError
from samerun.numerics.kernels import library, softmax, sums
from samerun.numerics.reference import sums as reference

SIZES = [0, 1, 2, 31, 32, 33, 255, 256, 257, 4095, 4096, 4097, 8192, 12289, 40961]
OPERATORS: dict[str, Callable[..., torch.Tensor]] = {
    "sum": sums.sum,
    "prod": sums.prod,
    "mean": sums.mean,
    "var": sums.var,
    "std": sums.std,
    "norm 0": lambda x, *given: sums.vector_norm(x, 0, *given),
    "norm 1": lambda x, *given: sums.vector_norm(x, 1, *given),
    "norm 2": lambda x, *given: sums.vector_norm(x, 2, *given),
}


def scalar_sum(x: list[float], real: type[np.floating]) -> np.floating:
    """The specification, word by word."""
    blocks = []
    for start in range(0, len(x), 4096):
        lanes = [real(-0.0)] * 32
        for i, value in enumerate(x[start : start + 4096]):
            lanes[i % 32] = lanes[i % 32] + real(value)
        for half in (16, 8, 4, 2, 1):
            for lane in range(half):
                lanes[lane] = lanes[lane] + lanes[lane + half]
        blocks.append(lanes[0])
    while len(blocks) > 1:
        paired = [blocks[i] + blocks[i + 1] for i in range(0, len(blocks) - 1, 2)]
        blocks = paired + ([blocks[-1]] if len(blocks) % 2 else [])
    return blocks[0]


@pytest.mark.parametrize("real", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 33, 4097, 12289, 20481])
def test_the_reference_is_the_specification(n: int, real: type[np.floating]) -> None:
    x = np.random.default_rng(n).standard_normal(n).astype(real)
    assert reference.sum_rows(x[None])[0] == scalar_sum(list(x), real)


def check(compute: Callable[[], torch.Tensor], hint: object) -> torch.Tensor:
    with at_level("reference"):
        want = compute()
    for name in NATIVE:
        with at_level(name):
            assert_same_bits(compute(), want, (name, hint))
    return want


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_sums_of_all_sizes(n: int, special: bool, dtype: torch.dtype, operator: str) -> None:
    x = values(n, seed=n, special=special, dtype=dtype)
    check(lambda: OPERATORS[operator](x), (operator, n))
    check(lambda: OPERATORS[operator](values(5, n, dtype=dtype), 1), (operator, n))
    check(lambda: OPERATORS[operator](values(n, 9, dtype=dtype), 0), (operator, n, "columns"))


SHAPES: list[tuple[torch.Tensor, str]] = [
    (values(6, 7, 300), "dense"),
    (values(300, 7, 6).permute(2, 1, 0), "permuted"),
    (values(12, 14, 900)[::2, 1::2, ::3], "strided"),
    (values(6, 1, 300).expand(6, 7, 300), "expanded"),
    (values(6, 7, 140), "many columns"),
    (values(2, 4500, 11), "long columns"),
    (values(3, 4, 64, 65).permute(0, 2, 3, 1), "channels last"),
    (values(5, 3, 32 * 98, special=True), "runs of whole lanes"),
    (values(9, 2, 1100)[:, :, 6:1030], "runs that lie apart"),
]


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize(("x", "name"), SHAPES, ids=[name for _, name in SHAPES])
def test_any_dimensions_and_strides(x: torch.Tensor, name: str, operator: str) -> None:
    for mask in range(1, 1 << x.ndim):
        dims = [dim for dim in range(x.ndim) if mask >> dim & 1]
        check(lambda: OPERATORS[operator](x, dims), (operator, name, dims))  # noqa: B023
        assert_same_bits(OPERATORS[operator](x, dims), OPERATORS[operator](x.contiguous(), dims), dims)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("rows", "blocks"), [(1, 16), (1, 17), (3, 9), (2, 31), (1, 512), (1, 513), (2, 521)])
def test_trees_of_many_blocks(rows: int, blocks: int, dtype: torch.dtype) -> None:
    """Their branches are added up eight blocks at a time, and 64 branches."""
    for n in (blocks * 4096, blocks * 4096 - 4095):
        x = values(rows, n, dtype=dtype)
        check(lambda: sums.sum(x, 1), (rows, n))  # noqa: B023
        check(lambda: sums.mean(x[0]), (rows, n))  # noqa: B023


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_do_not_change_bits(threads: int) -> None:
    x, y = values(3, 100_003), values(5000, 300)
    want = [sums.sum(x), sums.sum(x, 1), sums.sum(y, 0), sums.var(y, 0)]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for got, wanted in zip([sums.sum(x), sums.sum(x, 1), sums.sum(y, 0), sums.var(y, 0)], want, strict=True):
            assert_same_bits(got, wanted)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("operator", [sums.cumsum, sums.cumprod])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cumulative_operators(operator: Callable[..., torch.Tensor], dtype: torch.dtype) -> None:
    for x in (values(4, 33, 5, special=True, dtype=dtype), values(0, 3, dtype=dtype), values(dtype=dtype)):
        for dim in range(max(x.ndim, 1)):
            check(lambda: operator(x, dim), (x.shape, dim))  # noqa: B023
    x = values(100, dtype=dtype)
    want = getattr(torch, operator.__name__)(x.double(), 0)
    assert torch.allclose(operator(x, 0).double(), want, rtol=1e-4)


@pytest.mark.parametrize("operator", OPERATORS)
def test_as_exact_as_torch(operator: str) -> None:
    """The error against float64 is not worse than torch's (a rounding is allowed)."""
    x = values(64, 5000).abs() / 2 + 0.01 if operator != "prod" else values(64, 200) / 100 + 1
    torchs = {"norm 0": 0, "norm 1": 1, "norm 2": 2}
    compute = (
        (lambda x: torch.linalg.vector_norm(x, torchs[operator], 1))
        if operator in torchs
        else (lambda x: getattr(torch, operator)(x, 1))
    )
    want = compute(x.double())
    error = (OPERATORS[operator](x, 1).double() - want).abs().max()
    assert error <= (compute(x).double() - want).abs().max() + 1.2e-7 * want.abs().max()


def test_the_rest_of_the_specification() -> None:
    nothing = torch.empty(0, 3)
    assert sums.sum(nothing, 0).tolist() == [0, 0, 0]
    assert math.copysign(1, sums.sum(torch.tensor([-0.0])).item()) == -1
    assert sums.prod(nothing).item() == 1
    assert math.isnan(sums.mean(nothing).item())
    assert sums.sum(nothing, 1).shape == (0,)
    assert sums.mean(torch.tensor(3.0)).item() == 3
    assert sums.mean(values(2, 3, 4), (0, -1), keepdim=True).shape == (1, 3, 1)
    assert sums.vector_norm(torch.tensor([3.0, -4.0]), math.inf).item() == 4
    assert sums.vector_norm(torch.tensor([3.0, -4.0]), -math.inf).item() == 3
    assert sums.vector_norm(torch.tensor([3.0, -4.0, 5.0]), 3).item() == pytest.approx(6)
    assert sums.var(torch.tensor([1.0])).isnan()
    tiny = torch.full((64,), 1e-45)
    assert sums.sum(tiny).item() == 64 * tiny[0].item()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_storage_types_are_rounded_once(dtype: torch.dtype) -> None:
    x = values(3, 1000).to(dtype)
    assert_same_bits(sums.sum(x, 1), sums.sum(x.float(), 1).to(dtype))
    assert_same_bits(sums.std(x, 1), sums.std(x.float(), 1).to(dtype))


def test_subnormals_are_kept_whatever_the_thread_is_set_to() -> None:
    tiny = torch.full((10,), 1e-45)
    if not torch.set_flush_denormal(True):
        pytest.skip("this machine cannot flush")
    try:
        got = sums.sum(tiny, 0)
    finally:
        torch.set_flush_denormal(False)
    assert got.item() == 10 * tiny[0].item()


@pytest.mark.parametrize("level", library.supported_levels())
def test_tensors_without_dimensions(level: str) -> None:
    with at_level(level):
        for name, operator in OPERATORS.items():
            if name not in ("var", "std"):
                assert float(operator(torch.tensor(1.0))) == 1, name
        assert float(softmax.logsumexp(torch.tensor(1.5), 0)) == 1.5


def test_bad_input_is_refused() -> None:
    with pytest.raises(SamerunError, match=r"sum: torch.int32 has no portable kernel"):
        sums.sum(torch.ones(3, dtype=torch.int32))
    with pytest.raises(IndexError, match="Dimension out of range"):
        sums.sum(values(3), 1)
    with pytest.raises(RuntimeError, match="appears multiple times"):
        sums.sum(values(3, 3), (0, -2))
