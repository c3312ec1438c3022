"""Class M: the C library gives the bits of the reference, at every level, for any layout and any size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from samerun.numerics.kernels import library, linear_algebra
from samerun.numerics.kernels.linear_algebra import (
    FORWARD,
    GRADIENT_OF_INPUT,
    GRADIENT_OF_WEIGHT,
    convolution_output_size,
    convolve,
)
from samerun.numerics.reference import linear_algebra as reference

LEVELS = [name for name in library.supported_levels() if name != "reference"]


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    library.force_level(request.param)
    yield request.param
    library.force_level(None)


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def numbers(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape)).to(dtype)


def same_bits(a: Tensor, b: Any) -> bool:
    x, y = a.detach().numpy(), np.asarray(b)
    kind = np.int32 if x.dtype == np.float32 else np.int64
    ours, theirs = np.ascontiguousarray(x).view(kind), np.ascontiguousarray(y).view(kind)
    return bool(x.shape == y.shape and ((ours == theirs) | (np.isnan(x) & np.isnan(y))).all())


def test_fma_rounds_once() -> None:
    """Against fractions, with operands chosen so that a product and a sum would often round twice."""
    rng = np.random.default_rng(1)
    a, b, c = (
        (rng.integers(1, 1 << 24, 3000) * 2.0 ** rng.integers(-30, 8, 3000)).astype(np.float32) for _ in range(3)
    )
    c = np.where(rng.random(3000) < 0.5, -a * b, c).astype(np.float32)
    found = reference.fma(a, b, c)
    for x, y, z, got in zip(a, b, c, found, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        near = [np.nextafter(got, np.float32(-np.inf)), got, np.nextafter(got, np.float32(np.inf))]
        distance = [abs(Fraction(float(value)) - exact) for value in near]
        assert distance[1] <= min(distance[0], distance[2])
        if distance[1] in (distance[0], distance[2]):
            assert got.view(np.int32) % 2 == 0, "ties go to even"


SIZES = [(1, 1, 1), (1, 1, 700), (3, 5, 0), (2, 3, 255), (7, 25, 256), (5, 49, 257), (33, 31, 513), (1, 100, 300),
         (130, 3, 40), (4, 24, 16), (9, 1, 600), (140, 50, 20)]  # fmt: skip


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
def test_products_in_every_transposition(
    level: str, threads: int, m: int, n: int, k: int, turned: tuple[bool, bool]
) -> None:
    a = numbers(k, m).t() if turned[0] else numbers(m, k)
    b = numbers(n, k, seed=1).t() if turned[1] else numbers(k, n, seed=1)
    assert same_bits(linear_algebra.matmul(a, b), reference.matmul(a.numpy(), b.numpy()))


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(300, 1100, 300), (1100, 40, 520), (3, 2000, 600), (20, 1100, 300), (500, 1100, 260), (32, 1000, 600)],
)
@pytest.mark.parametrize("turned", [True, False])
def test_large_products_do_not_depend_on_threads_or_level(m: int, n: int, k: int, turned: bool) -> None:
    """Large enough for every way of blocking; the plain level is checked against the reference above."""
    a, b = numbers(m, k), numbers(n, k, seed=1).t() if turned else numbers(k, n, seed=1)
    found = []
    for name, count in itertools.product(LEVELS, (1, 2)):
        library.force_level(name)
        before = torch.get_num_threads()
        torch.set_num_threads(count)
        found.append(linear_algebra.matmul(a, b))
        torch.set_num_threads(before)
    library.force_level(None)
    assert all(same_bits(one, found[0].numpy()) for one in found)
    rows, columns = [0, m // 2, m - 1], [0, 23, 24, n // 2, n - 1]
    assert same_bits(found[0][rows][:, columns], reference.matmul(a[rows].numpy(), b[:, columns].numpy()))


def test_a_row_does_not_depend_on_the_batch(level: str) -> None:
    a, b = numbers(16, 300), numbers(300, 70, seed=1)
    for size in (1, 2, 3, 5, 8):
        assert same_bits(linear_algebra.matmul(a[:size], b)[0], linear_algebra.matmul(a, b)[0].numpy())


def test_strides_of_zero_and_more(level: str) -> None:
    a = numbers(1, 40).expand(6, 40)
    b = numbers(80, 90, seed=1)[::2, ::3]
    assert same_bits(linear_algebra.matmul(a, b), reference.matmul(a.numpy(), b.numpy()))
    a, b = numbers(2, 3, 9, 17), numbers(2, 3, 12, 17, seed=1).transpose(2, 3)
    assert same_bits(linear_algebra.matmul(a, b), reference.matmul(a.numpy(), b.numpy()))


@pytest.mark.parametrize("n", [5, 40])
@pytest.mark.parametrize("shape", [(-1,), (7, -1), (7, 1)])
def test_bias_is_one_more_rounding(level: str, n: int, shape: tuple[int, ...]) -> None:
    a, b = numbers(7, 300), numbers(300, n, seed=1)
    bias = numbers(*(n if size == -1 else size for size in shape), seed=2)
    plain = reference.matmul(a.numpy(), b.numpy())
    assert same_bits(linear_algebra.matmul(a, b, bias), plain + bias.numpy())


def test_float64_and_narrow_types(level: str) -> None:
    a, b = numbers(5, 260, dtype=torch.float64), numbers(260, 9, dtype=torch.float64, seed=1)
    assert same_bits(linear_algebra.matmul(a, b), reference.matmul(a.numpy(), b.numpy()))
    for dtype in (torch.bfloat16, torch.float16):
        x, y = a.to(dtype), b.to(dtype)
        expected = torch.from_numpy(reference.matmul(x.float().numpy(), y.float().numpy())).to(dtype)
        assert torch.equal(linear_algebra.matmul(x, y), expected)


def test_special_numbers(level: str) -> None:
    special = [0.0, -0.0, 1.0, float("inf"), float("-inf"), float("nan"), 1e-45, -1e-45, 3e38, 1.2e-38]
    a = torch.tensor(special).repeat(10).view(10, 10).t().contiguous()
    b = torch.tensor(special * 3).view(30).repeat(10, 1).roll(3, 1)
    assert same_bits(linear_algebra.matmul(a, b), reference.matmul(a.numpy(), b.numpy()))
    tiny = torch.full((3, 4), 1e-30), torch.full((4, 30), 1e-12)
    found = linear_algebra.matmul(*tiny)
    assert same_bits(found, reference.matmul(tiny[0].numpy(), tiny[1].numpy())) and bool((found > 0).all())


def test_accuracy_is_not_worse_than_torchs() -> None:
    for k in (300, 4096):
        a, b = numbers(64, k), numbers(k, 64, seed=1)
        exact = a.double() @ b.double()
        ours = (linear_algebra.matmul(a, b) - exact).square().mean().sqrt()
        sequential = a.new_zeros(64, 64)
        for i in range(k):
            sequential += a[:, i, None] * b[None, i]
        assert ours <= (sequential - exact).square().mean().sqrt()


# size, channels in, channels out, taps, stride, padding, dilation, groups
CONVOLUTIONS: list[tuple[Any, ...]] = [
    ((9,), 3, 5, (3,), (1,), (1,), (1,), 1),
    ((20,), 4, 6, (5,), (3,), (0,), (2,), 2),
    ((6, 7), 3, 4, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((8, 8), 2, 5, (1, 1), (1, 1), (0, 0), (1, 1), 1),
    ((9, 8), 4, 4, (3, 2), (2, 2), (1, 1), (1, 1), 1),
    ((8, 7), 6, 6, (3, 3), (1, 2), (2, 1), (2, 1), 3),
    ((7, 7), 5, 5, (3, 3), (1, 1), (1, 1), (1, 1), 5),
    ((5, 5), 3, 7, (5, 5), (1, 1), (4, 4), (1, 1), 1),
    ((6, 6), 2, 3, (2, 2), (3, 3), (0, 0), (1, 1), 1),
    ((12, 5), 34, 26, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((4, 5, 4), 2, 3, (2, 3, 2), (1, 2, 1), (1, 1, 0), (1, 1, 2), 1),
    # lines laid apart that fill whole vectors, with a rest
    ((9, 73), 3, 5, (3, 7), (2, 2), (1, 3), (1, 1), 1),
    ((140,), 2, 9, (4,), (3,), (5,), (2,), 1),
    ((40, 41), 4, 2, (1, 3), (1, 2), (0, 0), (1, 3), 2),
    # lines of whole vectors, which are not packed for few rows; more than one block of k
    ((9, 48), 30, 11, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((16, 16), 29, 17, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((10, 100), 2, 67, (2, 2), (1, 1), (0, 0), (1, 1), 1),
    # a gradient of the weight whose columns are read as lines
    ((11, 13), 8, 31, (3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((17, 20), 18, 32, (3, 3), (2, 2), (1, 1), (1, 1), 2),
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolutions_and_their_gradients(level: str, case: tuple[Any, ...]) -> None:
    size, channels, out_channels, taps, stride, padding, dilation, groups = case
    x, w = numbers(3, channels, *size), numbers(out_channels, channels // groups, *taps, seed=1)
    out = convolution_output_size(size, taps, stride, padding, dilation)
    bias, g = numbers(out_channels, seed=2), numbers(3, out_channels, *out, seed=3)
    setting = (stride, padding, dilation, groups)
    for plus in (None, bias):
        found = convolve(FORWARD, x, w, list(g.shape), plus, *setting)
        expected = reference.convolution(x.numpy(), w.numpy(), None if plus is None else bias.numpy(), *setting, out)
        assert same_bits(found, expected)
        plain = torch.nn.functional.conv1d if len(size) == 1 else (
            torch.nn.functional.conv2d if len(size) == 2 else torch.nn.functional.conv3d)  # fmt: skip
        assert torch.allclose(found, plain(x, w, plus, *setting), atol=1e-4)
    found = convolve(GRADIENT_OF_INPUT, list(x.shape), w, g, None, *setting)
    assert same_bits(found, reference.convolution_input_gradient(g.numpy(), w.numpy(), *setting, size))
    theirs = torch.ops.aten.convolution_backward(
        g, x, w, [out_channels], stride, padding, dilation, False, [0] * len(size), groups, [True, True, False]
    )
    assert torch.allclose(found, theirs[0], atol=1e-4)
    found = convolve(GRADIENT_OF_WEIGHT, x, list(w.shape), g, None, *setting)
    assert same_bits(found, reference.convolution_weight_gradient(g.numpy(), x.numpy(), *setting, taps))
    assert torch.allclose(found, theirs[1], atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_convolutions_of_many_images_are_those_of_each(threads: int, dtype: torch.dtype) -> None:
    """More than a thread takes at once, in parts of unequal size; one image is one part."""
    x, w = numbers(20, 16, 31, 33, dtype=dtype), numbers(5, 16, 3, 2, dtype=dtype, seed=1)
    bias = numbers(5, dtype=dtype)
    g, of_input = numbers(20, 20, 31, 34, dtype=dtype, seed=2), numbers(20, 16, 3, 2, dtype=dtype, seed=3)
    setting = ((1, 1), (1, 1), (1, 1), 1)
    forward = convolve(FORWARD, x, w, [20, 5, 31, 34], bias, *setting)
    backward = convolve(GRADIENT_OF_INPUT, list(x.shape), of_input, g, None, *setting)
    for i in range(len(x)):
        image = slice(i, i + 1)
        alone = convolve(FORWARD, x[image], w, [1, 5, 31, 34], bias, *setting)
        assert same_bits(alone, forward[image])
        alone = convolve(GRADIENT_OF_INPUT, [1, *x.shape[1:]], of_input, g[image], None, *setting)
        assert same_bits(alone, backward[image])


@pytest.mark.parametrize(("channels", "out_channels"), [(3, 4), (16, 32)])
def test_convolutions_without_images_or_pixels(level: str, threads: int, channels: int, out_channels: int) -> None:
    w, bias = numbers(out_channels, channels, 3, 3), numbers(out_channels)
    x, g = torch.empty(0, channels, 8, 8), torch.empty(0, out_channels, 8, 8)
    setting = ((1, 1), (1, 1), (1, 1), 1)
    assert convolve(FORWARD, x, w, list(g.shape), bias, *setting).numel() == 0
    assert convolve(GRADIENT_OF_INPUT, list(x.shape), w, g, None, *setting).numel() == 0
    nothing = convolve(GRADIENT_OF_WEIGHT, x, list(w.shape), g, None, *setting)
    assert nothing.shape == w.shape and not nothing.any()


@pytest.mark.parametrize(("channels", "out_channels"), [(0, 4), (0, 32), (3, 0), (32, 0)])
def test_gradients_without_channels(level: str, threads: int, channels: int, out_channels: int) -> None:
    """In a thread of its own, which has no memory from earlier calls."""
    x, w, g = numbers(2, channels, 8, 8), numbers(out_channels, channels, 3, 3), numbers(2, out_channels, 8, 8)
    setting = ((1, 1), (1, 1), (1, 1), 1)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(convolve, GRADIENT_OF_INPUT, list(x.shape), w, g, None, *setting).result()
    assert found.shape == (2, channels, 8, 8) and not found.any()
    found = convolve(GRADIENT_OF_WEIGHT, x, list(w.shape), g, None, *setting)
    assert found.shape == w.shape and found.numel() == 0


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5])
@pytest.mark.parametrize(("k", "columns"), [(64, 1), (255, 7), (256, 8), (257, 9), (1000, 33), (4099, 17)])
def test_few_rows_by_columns_that_lie_side_by_side(level: str, threads: int, rows: int, k: int, columns: int) -> None:
    """Linear on a few rows, and its mirror image: the weight is read where it lies."""
    x, w, bias = numbers(2, rows, k), numbers(2, columns, k, seed=1), numbers(2, rows, columns, seed=2)
    want = reference.matmul(x.numpy(), w.mT.numpy()) + bias.numpy()
    assert same_bits(linear_algebra.matmul(x, w.mT, bias), want)
    assert same_bits(linear_algebra.matmul(w, x.mT, bias.mT), want.transpose(0, 2, 1))
    spread = torch.zeros(2, columns, 2 * k)[:, :, ::2]
    spread.copy_(w)
    assert same_bits(linear_algebra.matmul(x, spread.mT, bias), want)


STRIDED: list[tuple[Any, ...]] = [
    ((19,), 3, 5, (4,), (3,), (1,), (2,), 1),
    ((9, 11), 4, 70, (3, 3), (2, 2), (1, 1), (1, 1), 1),
    ((9, 11), 6, 40, (5, 2), (2, 3), (2, 0), (1, 2), 2),
    ((6, 5), 3, 4, (1, 1), (2, 2), (0, 0), (1, 1), 1),
    ((7, 3), 2, 3, (2, 1), (4, 5), (1, 0), (1, 1), 1),
    ((6, 6), 2, 3, (2, 2), (1, 2), (9, 3), (4, 1), 1),
    ((5, 6, 7), 2, 30, (3, 2, 3), (2, 1, 3), (1, 1, 0), (1, 2, 1), 1),
]


@pytest.mark.parametrize("case", STRIDED, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("odd", ["", "gradient", "weight", "tiny"])
def test_zeros_between_strides_are_left_out_without_a_trace(
    level: str, threads: int, case: tuple[Any, ...], dtype: torch.dtype, odd: str
) -> None:
    """Infinite weights make NaNs of those zeros, and sums that underflow to -0.0 lose their sign at them."""
    size, channels, out_channels, taps, stride, padding, dilation, groups = case
    if dtype is torch.float64:
        out_channels, channels = 2 * groups, groups
    w = numbers(out_channels, channels // groups, *taps, seed=1, dtype=dtype)
    out = convolution_output_size(size, taps, stride, padding, dilation)
    g, bias = numbers(2, out_channels, *out, seed=3, dtype=dtype), numbers(channels, seed=2, dtype=dtype)
    g.view(-1)[::3] = -0.0
    if odd in ("gradient", "weight"):
        values = {"gradient": g, "weight": w}[odd].view(-1)
        values[1::9], values[2::9], values[4::9] = float("inf"), float("nan"), 1e-45
    if odd == "tiny":
        tiny = torch.finfo(dtype).tiny
        g, w = g * tiny**0.6, w * tiny**0.6
    setting = (stride, padding, dilation, groups)
    want = reference.convolution_input_gradient(g.numpy(), w.numpy(), *setting, size)
    assert same_bits(convolve(GRADIENT_OF_INPUT, [2, channels, *size], w, g, None, *setting), want)
    plus = bias.view(-1, *[1] * len(size)).numpy()
    assert same_bits(
        convolve(GRADIENT_OF_INPUT, [2, channels, *size], w, g, bias, *setting),
        want + plus,
    )


def test_a_negative_zero_that_a_left_out_zero_would_turn(level: str) -> None:
    """Value 0 of the input meets tap 2 of no output and tap 0 of output 0; the zero of tap 2 comes after it."""
    w = torch.tensor([[[-1e-30, 1.0, 1.0]]])
    g = torch.full((1, 1, 4), 1e-30)
    setting = ((2,), (0,), (1,), 1)
    found = convolve(GRADIENT_OF_INPUT, [1, 1, 9], w, g, None, *setting)
    want = reference.convolution_input_gradient(g.numpy(), w.numpy(), *setting, (9,))
    assert same_bits(found, want) and found[0, 0, 0].item() == 0 and not found[0, 0, 0].signbit()


def each_level_and_threads() -> Iterator[tuple[str, int]]:
    """For what takes the reference longer than the library."""
    before = torch.get_num_threads()
    try:
        for level, threads in itertools.product(LEVELS, (1, 2)):
            library.force_level(level)
            torch.set_num_threads(threads)
            yield level, threads
    finally:
        library.force_level(None)
        torch.set_num_threads(before)


def by_few_channels(x: Tensor, w: Tensor, g: Tensor, setting: tuple[Any, ...]) -> tuple[Any, Any]:
    """A convolution and its gradient by the input, of so few channels at a time that all taps are met.

    The reference's fma of float64 takes a microsecond.
    """
    groups, few = setting[-1], 10
    forward, backward = [], []
    for xs, ws, gs in zip(x.chunk(groups, 1), w.chunk(groups), g.chunk(groups, 1), strict=True):
        for some in ws.split(few):
            size = [len(g), len(some), *g.shape[2:]]
            forward.append(convolve(FORWARD, xs, some, size, None, *setting[:-1], 1))
        for part in ws.split(few, 1):
            size = [len(x), part.shape[1], *x.shape[2:]]
            backward.append(convolve(GRADIENT_OF_INPUT, size, part, gs, None, *setting[:-1], 1))
    return torch.cat(forward, 1).numpy(), torch.cat(backward, 1).numpy()


# Small images: more channels than the rows for which columns are read where they lie. Images last.
BORDERS: list[tuple[Any, ...]] = [
    ((14, 14), 30, 70, (3, 3), (1, 1), (1, 1), (1, 1), 1, 3),
    ((7, 7), 67, 66, (3, 3), (1, 1), (1, 1), (1, 1), 1, 8),
    ((7, 9), 3, 400, (3, 3), (1, 1), (1, 1), (1, 1), 1, 9),
    ((12, 11), 5, 66, (5, 4), (2, 1), (2, 3), (1, 2), 1, 5),
    ((13,), 140, 132, (3,), (1,), (2,), (2,), 2, 6),
    ((4, 5, 6), 3, 66, (3, 2, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), 1, 7),
    ((3, 3), 66, 66, (1, 1), (1, 1), (2, 2), (1, 1), 1, 8),
    ((5, 5), 5, 66, (8, 8), (1, 1), (4, 4), (1, 1), 1, 3),
    ((9, 9), 3, 66, (9, 9), (1, 1), (4, 4), (1, 1), 1, 3),
    # read directly from the image: whole vectors of channels
    ((10, 10), 32, 48, (3, 3), (1, 1), (1, 1), (1, 1), 1, 4),
    ((16, 15), 48, 32, (3, 3), (2, 2), (1, 1), (1, 1), 1, 3),
    ((9, 13), 64, 32, (5, 3), (1, 2), (2, 0), (1, 2), 2, 2),
    ((40, 41), 8, 16, (3, 3), (1, 1), (1, 1), (1, 1), 1, 1),
    ((37,), 32, 31, (4,), (2,), (3,), (1,), 1, 5),
    ((5, 6, 7), 16, 15, (3, 2, 3), (1, 1, 2), (1, 1, 1), (1, 1, 1), 1, 2),
    ((6, 7), 16, 16, (3, 2), (3, 3), (2, 1), (1, 1), 1, 3),
    ((3, 2), 16, 16, (3, 5), (1, 1), (3, 6), (1, 1), 1, 2),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", BORDERS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("odd", ["", "image", "weight", "tiny"])
def test_taps_beyond_the_border_are_left_out_without_a_trace(
    case: tuple[Any, ...], dtype: torch.dtype, odd: str
) -> None:
    size, channels, out_channels, taps, stride, padding, dilation, groups, images = case
    w = numbers(out_channels, channels // groups, *taps, seed=1, dtype=dtype)
    out = convolution_output_size(size, taps, stride, padding, dilation)
    x, g = numbers(images, channels, *size, dtype=dtype), numbers(images, out_channels, *out, seed=3, dtype=dtype)
    x.view(-1)[::3] = g.view(-1)[::3] = -0.0
    if odd in ("image", "weight"):
        for each in (x, g) if odd == "image" else (w,):
            values = each.view(-1)
            values[1::99], values[2::99], values[4::99] = float("inf"), float("nan"), 1e-45
    if odd == "tiny":
        tiny = torch.finfo(dtype).tiny
        x, g, w = x * tiny**0.6, g * tiny**0.6, w * tiny**0.6
    setting = (stride, padding, dilation, groups)
    bias = numbers(out_channels, seed=2, dtype=dtype)
    if dtype is torch.float32:
        forward = reference.convolution(x.numpy(), w.numpy(), None, *setting, out)
        backward = reference.convolution_input_gradient(g.numpy(), w.numpy(), *setting, size)
    else:
        forward, backward = by_few_channels(x, w, g, setting)
    plus = forward + bias.view(-1, *[1] * len(size)).numpy()
    for _ in each_level_and_threads():
        assert same_bits(convolve(FORWARD, x, w, list(g.shape), None, *setting), forward)
        assert same_bits(convolve(FORWARD, x, w, list(g.shape), bias, *setting), plus)
        assert same_bits(convolve(GRADIENT_OF_INPUT, list(x.shape), w, g, None, *setting), backward)


# For which the gradient of the weight is read directly from the image: whole vectors of channels. Images last.
DIRECT_GRADIENTS: list[tuple[Any, ...]] = [
    ((11, 13), 3, 32, (3, 3), (1, 1), (1, 1), (1, 1), 1, 9),
    ((7, 6), 33, 64, (3, 3), (1, 1), (1, 1), (1, 1), 1, 5),
    ((28, 27), 1, 15, (5, 5), (1, 1), (0, 0), (1, 1), 1, 2),
    ((30, 33), 3, 80, (7, 7), (2, 2), (3, 3), (1, 1), 1, 2),
    ((17, 20), 18, 32, (3, 2), (2, 3), (1, 1), (2, 1), 2, 3),
    ((300,), 2, 48, (4,), (1,), (2,), (3,), 1, 4),
    ((5, 6, 7), 7, 31, (3, 2, 3), (1, 2, 1), (1, 1, 0), (1, 1, 2), 1, 3),
    ((3, 2), 16, 16, (3, 5), (1, 1), (3, 6), (1, 1), 1, 1),
]


@pytest.mark.parametrize("case", DIRECT_GRADIENTS, ids=str)
@pytest.mark.parametrize("odd", ["", "special"])
def test_gradients_of_the_weight_of_few_channels(case: tuple[Any, ...], odd: str) -> None:
    size, channels, out_channels, taps, stride, padding, dilation, groups, images = case
    out = convolution_output_size(size, taps, stride, padding, dilation)
    x, g = numbers(images, channels, *size), numbers(images, out_channels, *out, seed=3)
    if odd:
        for each, step in ((x, 401), (g, 997)):
            values = each.view(-1)
            values[::3], values[1::step], values[2::step], values[4::step] = -0.0, float("inf"), float("nan"), 1e-45
    setting = (stride, padding, dilation, groups)
    want = reference.convolution_weight_gradient(g.numpy(), x.numpy(), *setting, taps)
    shape = [out_channels, channels // groups, *taps]
    for _ in each_level_and_threads():
        assert same_bits(convolve(GRADIENT_OF_WEIGHT, x, shape, g, None, *setting), want)


@pytest.mark.parametrize(("channels", "out_channels"), [(1, 70), (4, 96)])
def test_a_negative_zero_that_a_tap_beyond_the_border_would_turn(level: str, channels: int, out_channels: int) -> None:
    """The last line's product underflows to -0.0, and the zeros of the line beyond come after it."""
    x, w = torch.zeros(8, channels, 8, 8), torch.zeros(out_channels, channels, 3, 3)
    x[5, -1, 7], w[67, -1, 1], w[67, -1, 2] = 1e-30, -1e-30, 1.0
    setting = ((1, 1), (1, 1), (1, 1), 1)
    found = convolve(FORWARD, x, w, [8, out_channels, 8, 8], None, *setting)
    want = reference.convolution(x.numpy(), w.numpy(), None, *setting, (8, 8))
    assert same_bits(found, want) and found[5, 67, 7].eq(0).all() and not found[5, 67, 7].signbit().any()
