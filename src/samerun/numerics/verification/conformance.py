"""The conformance vectors: what each operator gives here for inputs made by Philox, as SHA-256 of the result.

A row is "operator type n digest". The inputs of every row come from the stream of `SEED`: x and y are
((word >> 8) * 2^-24 - 0.5) * 16 of draws 0 and 1, `random_float32_bit_patterns` has the words of draw 2 as bits, with
NaN, infinities, subnormals and -0.0 among them. Bytes are little-endian; every NaN counts as the same one. Rows of a
released version never change (vectors.txt; native/tests/conformance.c prints them without Python).

`survey_conformance` compares them on this machine: the record behind `samerun doctor --numerics`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from samerun.base.errors import SamerunError
from samerun.numerics.kernels import (
    distributions,
    elementwise,
    functions,
    library,
    linear_algebra,
    norms,
    random,
    softmax,
    sums,
)
from samerun.numerics.kernels.linear_algebra import FORWARD, GRADIENT_OF_INPUT, GRADIENT_OF_WEIGHT, convolve
from samerun.numerics.reference.random import philox_words

SEED = 20261121
SIZES = (0, 1, 31, 32, 33, 255, 256, 257, 4095, 4096, 4097, 10007)
ROWS, COLUMNS = 3, 9
FLOAT64_MOST = 33
"""Functions of float64 are compared for sizes up to here: without the C library each number takes milliseconds."""
WITHOUT_C_FUNCTION = frozenset(
    (
        *("gamma", "poisson", "binomial", "gamma_gradient", "beta_gradient"),
        *("reflections", "orthogonal", "triangular_system"),
    )
)
"""Rows of what is written in torch's operators, which the C sources have no function for."""

_NANS = {torch.float32: 0x7FC00000, torch.float64: 0x7FF8000000000000}


class ConformanceRow(NamedTuple):
    """One operator on one size, and the digest of its result."""

    operator: str
    type: str
    n: int
    digest: str

    def __str__(self) -> str:
        return " ".join(map(str, self))


class RowDifference(NamedTuple):
    computed: ConformanceRow
    expected_digest: str


def digest_tensor(x: torch.Tensor) -> str:
    """SHA-256 of the values; every NaN has the same bits."""
    values = x.contiguous().cpu().numpy().copy()
    if x.is_floating_point():
        whole = values.view(np.uint32 if x.dtype == torch.float32 else np.uint64)
        whole[np.isnan(values)] = _NANS[x.dtype]
    return hashlib.sha256(values.astype(values.dtype.newbyteorder("<")).tobytes()).hexdigest()


def uniform_float32_minus_8_to_8(draw_number: int, count: int) -> torch.Tensor:
    """float32 from -8 to 8."""
    steps = (philox_words(SEED, draw_number, count) >> np.uint32(8)).astype(np.float32)
    return torch.from_numpy((steps * np.float32(2.0**-24) - np.float32(0.5)) * np.float32(16))


def random_float32_bit_patterns(count: int) -> torch.Tensor:
    """float32 of any bits."""
    return torch.from_numpy(philox_words(SEED, 2, count).view(np.float32))


def compute_operator_results(size: int, device: str = "cpu") -> Iterator[tuple[str, torch.Tensor]]:
    """What each operator gives on a device for inputs of n values (or of n in each row)."""
    x, y, any_bits = (
        each.to(device)
        for each in (
            uniform_float32_minus_8_to_8(0, size * COLUMNS),
            uniform_float32_minus_8_to_8(1, size * COLUMNS),
            random_float32_bit_patterns(size),
        )
    )
    a, b, rows, grads = x[:size], y[:size], x[: ROWS * size].reshape(ROWS, size), y[: ROWS * size].reshape(ROWS, size)
    for name in functions.NAMES:
        yield name, functions.apply_correctly_rounded(name, any_bits)
    for name in functions.PAIR_NAMES:
        yield name, functions.apply_correctly_rounded_binary(name, a, b)
    yield "gelu", elementwise.gelu(a)
    yield "gelu_tanh", elementwise.gelu(a, "tanh")
    yield "silu", elementwise.silu(a)
    yield "gelu_backward", elementwise.gelu_backward(b, a)
    yield "gelu_tanh_backward", elementwise.gelu_backward(b, a, "tanh")
    yield "silu_backward", elementwise.silu_backward(b, a)
    yield "softmax", softmax.softmax(rows, 1)
    yield "log_softmax", softmax.log_softmax(rows, 1)
    yield "logsumexp", softmax.logsumexp(rows, 1)
    yield "softmax_backward", softmax.softmax_backward(grads, rows, 1)
    yield "log_softmax_backward", softmax.log_softmax_backward(grads, rows, 1)
    mean, r = torch.full((ROWS, 1), 0.25, device=device), torch.full((ROWS, 1), 1.5, device=device)
    yield "layer_norm", norms.layer_norm(rows, [size])[0]
    yield "layer_norm_backward", norms.layer_norm_backward(grads, rows, [size], mean, r)[0]
    yield "rms_norm", norms.rms_norm(rows, [size], eps=1e-5)[0]
    yield "rms_norm_backward", norms.rms_norm_backward(grads, rows, [size], r)[0]
    yield "sum", sums.sum(a)
    yield "sum_of_squares", sums.tree_sum("square", a, [0])
    yield "sum_of_sizes", sums.tree_sum("abs", a, [0])
    yield "prod", sums.prod(a)
    yield "sum_of_every_other", sums.sum(x[: 2 * size : 2])
    yield "sum_of_columns", sums.sum(x.reshape(size, COLUMNS), 0)
    yield "sum", sums.sum(a.double() * b.double())
    yield "cumsum", sums.cumsum(a, 0)
    yield "cumprod", sums.cumprod(a, 0)
    yield "uniform", random.uniform([size], SEED, 7, device)
    yield "normal", random.normal([size], SEED, 7, device)
    yield "randint", random.randint(-5, 1000, [size], SEED, 7, device)
    yield "sqrt", elementwise.sqrt(any_bits)
    yield "sqrt", elementwise.sqrt(a.double().abs())
    for name, of in (("fmod", elementwise.fmod), ("remainder", elementwise.remainder)):
        yield name, of(any_bits, b)
        yield name, of(a.double() * 2.0**40, b.double())
    yield "randint_of_64_bits", random.randint(-(1 << 63), 1 << 63, [size], SEED, 7, device)
    yield "block_words", random.philox_block_words(torch.arange(size, device=device) * 3, SEED, 7)
    if size <= FLOAT64_MOST:
        yield from _float64_function_results(a.double(), b.double())
    yield from _distribution_results(a.double().abs(), b.double().abs())
    yield from _product_results(size, x, y, any_bits)
    yield from _qr_and_triangular_solve_results(size, x, y)
    if size:
        yield from _conv2d_and_gradient_results(size, x)


def _float64_function_results(a: torch.Tensor, b: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Of doubles with 49 bits."""
    x, y = a + b * 2.0**-26, b - a * 2.0**-26
    for name in functions.NAMES:
        yield name, functions.apply_correctly_rounded(name, x)
    for name in functions.PAIR_NAMES:
        yield name, functions.apply_correctly_rounded_binary(name, x, y)


def _distribution_results(positive_a: torch.Tensor, positive_b: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Numbers of parameters from 0 to 8, and how they move."""
    share = positive_b / 8
    yield "gamma", distributions.sample_gamma(positive_a, distributions.RandomDraw(SEED, 7))
    yield "poisson", distributions.sample_poisson(positive_a * 4, distributions.RandomDraw(SEED, 7))
    yield (
        "binomial",
        distributions.sample_binomial((positive_a * 32).floor(), share, distributions.RandomDraw(SEED, 7)),
    )
    yield "gamma_gradient", distributions.gamma_gradient(positive_a, positive_b)
    yield "beta_gradient", distributions.dirichlet_grad(share, positive_a, positive_a + share + 0.125)


def _qr_and_triangular_solve_results(size: int, x: torch.Tensor, y: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Of a matrix of n rows, and of a triangular one with n right sides."""
    packed, tau = linear_algebra.householder_qr(x[: ROWS * size].reshape(1, size, ROWS))
    yield "reflections", packed
    yield "orthogonal", linear_algebra.multiply_reflectors(packed, tau, min(size, ROWS))
    system = uniform_float32_minus_8_to_8(3, COLUMNS * COLUMNS).to(x.device).double().reshape(1, COLUMNS, COLUMNS)
    yield (
        "triangular_system",
        linear_algebra.solve_triangular(system, y.double().reshape(1, COLUMNS, size), True, False),
    )


def _product_results(
    size: int, x: torch.Tensor, y: torch.Tensor, any_bits: torch.Tensor
) -> Iterator[tuple[str, torch.Tensor]]:
    """Class M with n as k, and with n as the number of rows."""
    small, plus = (
        uniform_float32_minus_8_to_8(3, COLUMNS * ROWS).reshape(COLUMNS, ROWS).to(x.device),
        uniform_float32_minus_8_to_8(4, ROWS).to(x.device),
    )
    yield "product", linear_algebra.matmul(x[: ROWS * size].reshape(ROWS, size), y.reshape(size, COLUMNS))
    yield (
        "product",
        linear_algebra.matmul(x[:size].double().reshape(1, size), y[: ROWS * size].double().reshape(size, ROWS)),
    )
    yield (
        "product_of_columns",
        linear_algebra.matmul(x.reshape(size, COLUMNS).t(), y[: ROWS * size].reshape(ROWS, size).t()),
    )
    yield "product_plus_bias", linear_algebra.matmul(x.reshape(size, COLUMNS), small, plus)
    yield "product_of_one_row", linear_algebra.matmul(x[:size].reshape(1, size), y.reshape(COLUMNS, size).t())
    yield "product_of_anything", linear_algebra.matmul(any_bits.reshape(size, 1), small.reshape(1, -1))


def _conv2d_and_gradient_results(size: int, x: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Of an image of n columns: two rows, three channels, every other column, borders on both sides."""
    image, weight = [1, 3, 2, size], [4, 3, 2, 3]
    gradient = [1, 4, 3, (size - 1) // 2 + 1]
    pixels, w, g = (
        each.reshape(shape).to(x.device)
        for each, shape in (
            (x[: 6 * size], image), (uniform_float32_minus_8_to_8(3, 72), weight),
            (uniform_float32_minus_8_to_8(4, 12 * gradient[-1]), gradient),
        )
    )  # fmt: skip
    how = ((1, 2), (1, 1), (1, 1), 1)
    yield (
        "convolution",
        convolve(FORWARD, pixels, w, gradient, uniform_float32_minus_8_to_8(5, 4).to(x.device), *how),
    )
    yield (
        "convolution_gradient_of_input",
        convolve(GRADIENT_OF_INPUT, image, w, g, None, *how),
    )
    yield (
        "convolution_gradient_of_weight",
        convolve(GRADIENT_OF_WEIGHT, pixels, weight, g, None, *how),
    )


def compute_conformance_rows(sizes: tuple[int, ...] = SIZES, device: str = "cpu") -> Iterator[ConformanceRow]:
    """Every row, computed here, at the level in force, or on a CUDA device."""
    for n in sizes:
        for name, result in compute_operator_results(n, device):
            yield ConformanceRow(name, str(result.dtype).removeprefix("torch."), n, digest_tensor(result))


def read_expected_vectors_text() -> str:
    """The text of the file of vectors."""
    return Path(__file__).with_name("vectors.txt").read_text(encoding="utf-8")


def find_differing_rows(
    expected_vectors_text: str,
    sizes: tuple[int, ...] = SIZES,
    on_row: Callable[[ConformanceRow], None] | None = None,
    device: str = "cpu",
) -> list[RowDifference]:
    """The rows that this machine computes otherwise than `expected` (the text of a file of vectors) says.

    `on_row` is called with every row that was computed.
    """
    wanted = dict(line.rsplit(" ", 1) for line in expected_vectors_text.splitlines() if line)
    differing = []
    for row in compute_conformance_rows(sizes, device):
        key = f"{row.operator} {row.type} {row.n}"
        if wanted.get(key) != row.digest:
            differing.append(RowDifference(row, wanted.get(key, "no such row")))
        if on_row is not None:
            on_row(row)
    return differing


SPECIFICATION = 1
"""The version of the specification."""


def survey_conformance(on_rows_done_and_total: Callable[[int, int], None]) -> dict[str, Any]:
    """Compute every row of the conformance vectors at the level in force, and on each CUDA device.
    `progress(rows done, rows in all)`.

    `different`: the rows with other bits, what was wanted and what came. `cuda`: the same for each device, with its
    name; or `trouble`, why its kernels cannot run.
    """
    expected = read_expected_vectors_text()
    devices = torch.cuda.device_count() if torch.version.cuda and torch.cuda.is_available() else 0
    total, done = len(expected.splitlines()) * (1 + devices), 0

    def on_row(row: ConformanceRow) -> None:
        nonlocal done
        done += 1
        on_rows_done_and_total(done, total)

    differences = find_differing_rows(expected, on_row=on_row)
    rows = done
    cuda = [_survey_device(expected, f"cuda:{number}", on_row) for number in range(devices)]
    return {
        "specification": SPECIFICATION,
        "library": library.load_library_or_none() is not None,
        "level": library.current_level(),
        "levels": library.supported_levels(),
        "threads": torch.get_num_threads(),
        "rows": rows,
        "different": _describe_differences(differences),
        "cuda": cuda,
    }


def _describe_differences(differences: list[RowDifference]) -> list[dict[str, Any]]:
    return [
        {"operator": row.operator, "type": row.type, "n": row.n, "wanted": wanted, "got": row.digest}
        for row, wanted in differences
    ]


def _survey_device(expected_vectors: str, device: str, on_row: Callable[[ConformanceRow], None]) -> dict[str, Any]:
    rows = 0

    def count_row(row: ConformanceRow) -> None:
        nonlocal rows
        rows += 1
        on_row(row)

    record: dict[str, Any] = {"device": device, "name": torch.cuda.get_device_name(device), "trouble": None}
    try:
        differences = find_differing_rows(expected_vectors, on_row=count_row, device=device)
    except SamerunError as error:
        return {**record, "trouble": str(error), "rows": rows, "different": []}
    return {**record, "rows": rows, "different": _describe_differences(differences)}
