"""The CUDA kernels and what lies between them and `portable()`, run on the CPU (cuda_emulation.py): the same bits."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cuda_emulation import Emulator, built, emulated
from portable_cases import run
from portable_operator_cases import ALL_CASES
from portable_values import assert_same_bits, values
from torch import Tensor
from torch.utils import _python_dispatch

import samerun
from samerun.numerics.aten_handlers.declare import HALF_TYPES
from samerun.numerics.aten_handlers.table import TABLES, WHOLE_BY_TORCH
from samerun.numerics.dispatch import mode
from samerun.numerics.kernels import elementwise, linear_algebra, norms, ordered_scatter, softmax, sums
from samerun.numerics.verification import conformance


@pytest.fixture(scope="module")
def folder(pytestconfig: pytest.Config) -> Path:
    """Where compiled kernels are kept from one run of the tests to the next."""
    assert pytestconfig.cache is not None
    return Path(pytestconfig.cache.mkdir("cuda_emulation"))


@pytest.mark.parametrize("n", [0, 1, 31, 33, 257])
def test_the_conformance_vectors(n: int, folder: Path) -> None:
    with emulated(folder) as emulator:
        wrong = conformance.find_differing_rows(conformance.read_expected_vectors_text(), sizes=(n,))
    assert not wrong
    assert len(emulator.launched) > 40 or n == 0


_, EXACT_ON_CUDA, EXACT_OVERLOADS_ON_CUDA = TABLES["cuda"]


def compute_device_remainder(x: Any, y: Any, floored: bool) -> torch.Tensor:
    """CUDA's own functions are exact, and are used as they are; torch's for the CPU are not."""
    pair = (torch.as_tensor(each, dtype=torch.result_type(x, y)) for each in (x, y))
    dividend, divisor = (each.contiguous().numpy() for each in torch.broadcast_tensors(*pair))
    with np.errstate(all="ignore"):
        result = np.fmod(dividend, divisor)
        if floored:
            result = np.where((result != 0) & ((divisor < 0) != (result < 0)), result + divisor, result)
    return torch.from_numpy(result.astype(dividend.dtype))


@pytest.mark.exhaustive
@pytest.mark.parametrize("n", [n for n in conformance.SIZES if n not in (0, 1, 31, 33, 257)])
def test_the_longer_conformance_vectors(n: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elementwise, "compute_torch_remainder", compute_device_remainder)
    with emulated(folder):
        assert not conformance.find_differing_rows(conformance.read_expected_vectors_text(), sizes=(n,))


def both(folder: Path, function: Callable[[], Any]) -> Emulator:
    """The function's results by the C library and by emulated kernels are alike."""
    by_cpu = function()
    with emulated(folder) as emulator:
        by_cuda = function()
    one, other = ([each] if isinstance(each, Tensor) else list(each) for each in (by_cpu, by_cuda))
    for mine, want in zip(other, one, strict=True):
        assert_same_bits(mine, want)
    return emulator


@pytest.mark.parametrize(
    ("m", "k", "n", "kernel"),
    [(150, 70, 141, "gemm_large32"), (129, 300, 130, "gemm_large32"), (33, 513, 65, "gemm_small32"),
     (40, 256, 200, "gemm_small32"), (1, 1100, 9, "sum_split_k_parts32"), (5, 0, 3, "sum_split_k_parts32")],
)  # fmt: skip
@pytest.mark.parametrize("turned", [False, True])
def test_products_of_every_tile(m: int, k: int, n: int, kernel: str, turned: bool, folder: Path) -> None:
    a, b = values(m, k, seed=1, special=True), values(k, n, seed=2)
    if turned:
        a, b = values(k, m, seed=1, special=True).t(), values(n, k, seed=2).t()
    emulator = both(folder, lambda: linear_algebra.matmul(a, b, values(n, seed=3)))
    assert kernel in emulator.launched


def test_products_of_float64_and_of_batches(folder: Path) -> None:
    wide = [values(*shape, seed=7, dtype=torch.float64) for shape in ((130, 300), (300, 70))]
    assert "gemm_large64" in both(folder, lambda: linear_algebra.matmul(*wide)).launched
    batch = values(5, 33, 40), values(5, 40, 35, seed=1), values(33, 1, seed=2)
    both(folder, lambda: linear_algebra.matmul(*batch))
    both(folder, lambda: linear_algebra.matmul(batch[0].transpose(1, 2), batch[0]))


def test_products_underflow_to_the_same_zero(folder: Path) -> None:
    """A k that is not there must not be multiplied: 0 * 0 would make -0.0 to +0.0."""
    a, b = torch.full((3, 259), -1e-30), torch.full((259, 4), 1e-30)
    emulator = both(folder, lambda: linear_algebra.matmul(a, b))
    assert emulator.launched and str(float(linear_algebra.matmul(a, b)[0, 0])) == "-0.0"


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape", [(3, 9000), pytest.param((2, 33000), marks=pytest.mark.exhaustive), (5, 1), (4, 0), (300, 40)]
)
def test_rows(shape: tuple[int, int], folder: Path) -> None:
    x, g = values(*shape, seed=1), values(*shape, seed=2)
    for name in softmax.NAMES:
        grad = g if "backward" in name else None
        both(folder, lambda name=name, grad=grad: softmax.compute_softmax_family_rows(name, x, grad))
    w, b = values(shape[1], seed=3), values(shape[1], seed=4)
    _, mean, r = norms.layer_norm(x, [shape[1]], w, b)
    both(folder, lambda: norms.layer_norm(x, [shape[1]], w, b))
    both(folder, lambda: norms.layer_norm_backward(g, x, [shape[1]], mean, r, w))


@pytest.mark.parametrize("shape", [(7, 6, 5, 3), (3, 4, 50, 60), (2, 3, 1, 1)])
def test_norms_of_channels(shape: tuple[int, ...], folder: Path) -> None:
    x, g, w, b = values(*shape, special=True), values(*shape, seed=1), values(shape[1]), values(shape[1], seed=2)
    for training in (True, False):
        running = values(shape[1], seed=3), values(shape[1], seed=4).abs()
        both(folder, lambda running=running, training=training: norms.batch_norm(
            x, w, b, *(each.clone() for each in running), training))  # fmt: skip
        _, mean, r = norms.batch_norm(x, w, b, *running, training)
        both(folder, lambda mean=mean, r=r, training=training: norms.batch_norm_backward(g, x, mean, r, w, training))
    both(folder, lambda: norms.group_norm(x, 1, w, b))
    _, mean, r = norms.group_norm(x, 1, w, b)
    both(folder, lambda: norms.group_norm_backward(g, x, 1, mean, r, w))


SHAPES: list[tuple[tuple[int, ...], list[int]]] = [
    ((3, 50, 40), [1]), ((3, 50, 40), [0, 2]), ((2, 1100, 9), [1]), ((70000,), [0]), ((9000, 3), [0]),
    ((4, 0, 3), [1]), ((0, 3), [1]), ((5,), []), ((2, 3, 4, 5, 6), [0, 2, 4]), ((1100000,), [0]),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "dims"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums(shape: tuple[int, ...], dims: list[int], dtype: torch.dtype, folder: Path) -> None:
    x = values(*shape, dtype=dtype)
    for term in ("x", "square", "abs", "product"):
        both(folder, lambda term=term: sums.tree_sum(term, x, dims))
    center = sums.tree_sum("x", x, dims)
    both(folder, lambda: sums.tree_sum("square_from_center", x, dims, center))
    if x.ndim > 1:
        turned = x.transpose(0, 1)
        both(folder, lambda: sums.tree_sum("x", turned, dims))


@pytest.mark.parametrize("dim", [0, 1])
def test_running_sums(dim: int, folder: Path) -> None:
    both(folder, lambda: sums.cumsum(values(40, 300), dim))
    both(folder, lambda: sums.cumprod(values(40, 3), dim))


class Trap(_python_dispatch.TorchDispatchMode):
    """Below the portable mode: which of torch's own kernels run, that would not be exact on CUDA."""

    ONE_OPERATION = frozenset(
        ["add", "sub", "rsub", "clamp", "clamp_min", "clamp_max", "maximum", "minimum", "amax", "amin", "arange"]
    )
    OF_WHOLE_NUMBERS = frozenset(["sum", "cumsum", "prod", "index_add", "bincount", "pow", "max", "scatter_add"])
    OF_WIDE_NUMBERS = frozenset(["fmod", "remainder", "threshold"])
    CHOOSING = frozenset(["fractional_max_pool2d", "fractional_max_pool3d"])
    UNIQUE_PLACES = frozenset(["aten::scatter_.src", "aten::scatter_.value"])

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace != "aten":  # the profiler's marks
            return func(*args, **kwargs)
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            with self:
                return func.decompose(*args, **kwargs)
        name = func._schema.name
        overload = f"{name}.{func._schema.overload_name or 'default'}"
        base = name.removeprefix("aten::").rstrip("_")
        if base in ("div", "floor_divide"):
            assert isinstance(args[1], Tensor), f"{func} by a number"
        elif base in self.ONE_OPERATION:
            assert kwargs.get("alpha", 1) == 1, func
        elif base in self.OF_WIDE_NUMBERS:  # of halves, CUDA rounds their numbers first
            assert all(x.dtype not in HALF_TYPES for x in args if isinstance(x, torch.Tensor)), func
        elif base == "threshold_backward":
            assert args[2] == 0 or args[0].dtype not in HALF_TYPES, func
        elif base in self.CHOOSING:
            assert args[0].dtype is torch.float32  # it places windows in that type there
        elif base == "scatter_reduce":
            assert args[4] in ("amax", "amin"), func
        elif base == "random":
            assert args[0].numel() == 1  # the CPU's stream moves on by one
        elif base in self.OF_WHOLE_NUMBERS and overload not in EXACT_OVERLOADS_ON_CUDA:  # max.dim only chooses
            assert not args[0].is_floating_point(), func
        else:
            is_whole = isinstance(args[0], Tensor) and not args[0].is_floating_point()
            known = {name, f"aten::{base}"} & EXACT_ON_CUDA or {overload, overload.replace("_.", ".")} & (
                EXACT_OVERLOADS_ON_CUDA | self.UNIQUE_PLACES
            )
            by_torch = is_whole and {name, overload, f"aten::{base}"} & WHOLE_BY_TORCH
            assert known or by_torch, f"{func} inside a handler"
        return func(*args, **kwargs)


@contextmanager
def trapped() -> Iterator[None]:
    """Inside `portable()`, with the trap below its mode."""
    with samerun.portable():
        portable_mode = mode.current_portable_mode()
        _python_dispatch._pop_mode()
        _python_dispatch._push_mode(Trap())  # type: ignore[no-untyped-call]
        _python_dispatch._push_mode(portable_mode)
        try:
            yield
        finally:
            _python_dispatch._pop_mode()
            _python_dispatch._pop_mode()
            _python_dispatch._push_mode(portable_mode)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter")
@pytest.mark.parametrize(("name", "function", "inputs"), ALL_CASES, ids=[case[0] for case in ALL_CASES])
def test_operators(name: str, function: Callable[..., Any], inputs: list[Any], folder: Path) -> None:
    before = torch.get_default_dtype()
    with samerun.portable():
        wanted = run(function, inputs, torch.float32)
    with emulated(folder), trapped():
        got = run(function, inputs, torch.float32)
    torch.set_default_dtype(before)
    for mine, want in zip(got, wanted, strict=True):
        assert_same_bits(mine, want)


DRAWS: dict[str, Callable[[], Tensor]] = {
    "poisson": lambda: torch.poisson(values(500).abs() * 20),
    "binomial": lambda: torch.binomial(values(500).abs() * 30, torch.linspace(0, 1, 500)),
    "gamma": lambda: torch._standard_gamma(values(500).abs()),
    "dirichlet": lambda: torch._sample_dirichlet(values(100, 5).abs()),
    "gamma moves": lambda: torch._standard_gamma_grad(values(300).abs(), values(300, seed=1).abs()),
    "dirichlet moves": lambda: torch._dirichlet_grad(values(300).abs() % 1, values(300).abs(), values(300).abs() + 1),
    "cauchy": lambda: torch.empty(500).cauchy_(1, 2),
    "log_normal": lambda: torch.empty(500).log_normal_(),
    "geometric": lambda: torch.empty(500).geometric_(0.2),
    "rrelu": lambda: F.rrelu(values(500), training=True),
    "orthogonal": lambda: torch.nn.init.orthogonal_(torch.empty(20, 30)),
    "roots": lambda: torch.sqrt(values(5000).abs()),
    "roots of float64": lambda: torch.sqrt(values(5000, dtype=torch.float64).abs()),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws(name: str, folder: Path) -> None:
    torch.manual_seed(7)
    with samerun.portable():
        want = DRAWS[name]()
    torch.manual_seed(7)
    with emulated(folder), trapped():
        got = DRAWS[name]()
    assert_same_bits(got, want)


def test_sums_of_long_segments(folder: Path) -> None:
    """More occurrences of one row than a block of a sum has."""
    rows, index = values(9001, 3), torch.from_numpy((values(9001).numpy() > 1.5).astype("int64"))
    want = torch.stack([sums.sum(rows[index == place], 0) for place in range(2)])
    with emulated(folder):
        assert_same_bits(ordered_scatter.segment_sum(rows, index, 2), want)


RACE = """
extern "C" __global__ void turned(const float *x, float *out) {
    __shared__ float kept[64];
    kept[threadIdx.x] = x[threadIdx.x];
    BARRIER
    out[threadIdx.x] = kept[63 - threadIdx.x];
}
"""


@pytest.mark.parametrize("barrier", ["__syncthreads();", ""])
def test_a_missing_barrier_shows(barrier: str, folder: Path) -> None:
    x, found = torch.arange(64.0), []
    library = built(f"race{bool(barrier)}", RACE.replace("BARRIER", barrier), folder)
    for backwards in (0, 1):
        out = torch.zeros(64)
        given = (ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()))
        places = (ctypes.c_void_p * 2)(*(ctypes.addressof(each) for each in given))
        assert library.emulated_launch(b"turned", ctypes.c_long(1), 64, 1, places, backwards)
        found.append(torch.equal(out, x.flip(0)))
    assert all(found) is bool(barrier)


@pytest.mark.parametrize("make", ["sgd", "adamw", "fused"])
def test_training_steps(make: str, folder: Path) -> None:
    def train() -> list[Tensor]:
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.GELU(), torch.nn.MaxPool2d(2),
            torch.nn.Flatten(), torch.nn.Dropout(0.2), torch.nn.Linear(64, 12), torch.nn.LayerNorm(12),
            torch.nn.Linear(12, 5),
        )  # fmt: skip
        parameters = list(net.parameters())
        optimizer: torch.optim.Optimizer = (
            torch.optim.SGD(parameters, 0.1, 0.9)
            if make == "sgd"
            else torch.optim.AdamW(parameters, fused=make == "fused", foreach=False if make == "fused" else None)
        )
        for _ in range(2):
            loss = F.cross_entropy(net(torch.randn(6, 1, 8, 8)), torch.randint(0, 5, (6,)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return [each.detach() for each in parameters]

    with samerun.portable():
        want = train()
    with emulated(folder), trapped():
        got = train()
    for mine, theirs in zip(got, want, strict=True):
        assert_same_bits(mine, theirs)
