"""Every deterministic operator: torch's values, the same bits every time, nothing nondeterministic inside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import operator_cases
import pytest
import torch
import torch.nn.functional as F
from deterministic_stand_in import stand_in
from operator_cases import CASES, Inputs
from torch.utils._python_dispatch import TorchDispatchMode

from samerun.control.deterministic_kernels import install
from samerun.control.deterministic_kernels.declare import DeterministicOperator
from samerun.control.deterministic_kernels.table import OPERATORS

BY_NAME = {operator.name: operator for operator in OPERATORS}
EXACT = {"max_unpool", "put", "histc", "kthvalue", "median", "resize_quantized"}
"""Nothing is added up; of put, what is not accumulated (see below)."""
TYPES = [torch.float32, torch.float64]
NARROW = [torch.bfloat16, torch.float16]

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor"),
    pytest.mark.filterwarnings("ignore:index_reduce.. is in beta"),
]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """With two, torch's own put_ and max_unpool on the CPU race for cells."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(name: str, dtype: torch.dtype, device: str = "cpu", through: torch.dtype | None = None) -> list[torch.Tensor]:
    torch.manual_seed(7)
    return [out for case in CASES[name] for out in case(Inputs(device, dtype, through))]


def bits(tensors: list[torch.Tensor]) -> list[bytes]:
    return [
        each.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
        for each in tensors
        if each.numel()
    ]


# The table.


def test_every_operator_of_the_folder_is_in_the_table_and_has_cases() -> None:
    files = sorted(Path(install.__file__).parent.glob("[a-z]*.py"))
    members = [import_module(f"{install.__package__}.{path.stem}") for path in files if path.stem != "table"]
    declared = [each for module in members for each in vars(module).values()]
    operators = [each for each in declared if isinstance(each, DeterministicOperator)]
    assert {each.name for each in operators} == set(BY_NAME) == set(CASES)
    assert len(operators) == len(OPERATORS) == len(BY_NAME)


@pytest.mark.parametrize("name", BY_NAME)
def test_words_and_overloads(name: str) -> None:
    operator = BY_NAME[name]
    for text in (operator.what, operator.method, operator.cost):
        assert text.endswith(".") and not text.isupper()
    for kernel in operator.kernels:
        for overload in kernel.overloads:
            packet, _, rest = overload.partition(".")
            assert getattr(torch.ops.aten, packet), overload
            assert (rest or "default") in getattr(torch.ops.aten, packet).overloads(), overload


def listed(start: str, end: str) -> set[str]:
    """The names in one part of torch's list."""
    text = str(torch.use_deterministic_algorithms.__doc__)
    part = text[text.index(start) : text.index(end)]
    return set(re.findall(r"\* :(?:class|func):`([\w.]+)`", part)) | set(re.findall(r"- ``(\w+)``", part))


def test_all_that_torch_says_it_refuses_is_in_the_table() -> None:
    refused = listed("operations will throw a", "In addition")
    assert len(refused) > 20
    covered = {name for operator in OPERATORS for name in operator.listed}
    assert refused <= covered, f"torch refuses more than it did: {sorted(refused - covered)}"


# What they compute.


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", BY_NAME)
def test_the_values_are_those_of_torch(name: str, dtype: torch.dtype) -> None:
    wanted = run(name, dtype)
    with stand_in(BY_NAME[name]) as calls:
        got = run(name, dtype)
    assert len(wanted) == len(got) and any(each.numel() for each in got)
    tolerance = 2e-5 if dtype is torch.float32 else 1e-12
    for one, other in zip(wanted, got, strict=True):
        assert one.dtype is other.dtype and one.shape == other.shape
        torch.testing.assert_close(other, one, rtol=tolerance, atol=tolerance, equal_nan=True)
    if name in EXACT:
        first = 2 if name == "put" else 0  # those before add up
        assert bits(wanted[first:]) == bits(got[first:])
    unused = {kernel for kernel, count in calls.items() if not count}
    assert unused <= {"cudnn_grid_sampler_backward", "_ctc_loss_backward.Tensor"}, "a case for every kernel"


NOT_NARROW = {
    "ctc_loss", "histc", "resize_quantized", "avg_pool3d", "interpolate", "max_pool", "grid_sample"
}  # fmt: skip
"""Torch's forward pass on the CPU has no narrow types there, or takes other windows; or the table leaves them to torch;
or many points lie on the border of two cells, where torch's vectors and scalars disagree."""


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("name", sorted(set(BY_NAME) - NOT_NARROW))
def test_narrow_types_are_added_up_in_float32(name: str, dtype: torch.dtype) -> None:
    """Nearly the values in float32 of the same inputs, whose results are rounded."""
    wanted = run(name, torch.float32, through=dtype)
    with stand_in(BY_NAME[name]):
        got = run(name, dtype)
    unit = torch.finfo(dtype).eps
    for one, other in zip(wanted, got, strict=True):
        assert one.shape == other.shape and other.dtype in (dtype, torch.float64, torch.int64)
        finite = one.isfinite() & other.isfinite()
        if finite.any():
            apart = (one[finite].double() - other[finite].double()).abs().max().item()
            assert apart <= 4 * unit * max(1.0, one[finite].abs().max().item())


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [4, pytest.param(20, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("name", BY_NAME)
def test_repeats_have_the_same_bits(name: str, repeats: int) -> None:
    torch.set_num_threads(2)
    with stand_in(BY_NAME[name]):
        first = bits(run(name, torch.float32))
        for _ in range(repeats - 1):
            assert bits(run(name, torch.float32)) == first


# Their gradients against differences of the forward pass.

PICTURE = torch.arange(20.0, dtype=torch.float64).view(1, 1, 4, 5)
GRADIENTS: dict[str, list[tuple[Any, tuple[int, ...]]]] = {
    "avg_pool3d": [(lambda x: F.avg_pool3d(x, 2, 1, 1), (1, 1, 3, 4, 3))],
    "adaptive_avg_pool": [(lambda x: F.adaptive_avg_pool2d(x, (2, 5)), (1, 2, 3, 4))],
    "max_pool": [(lambda x: F.adaptive_max_pool2d(x, (2, 3)), (1, 2, 3, 5)),
                 (lambda x: F.max_pool3d(x, 2, 1), (1, 3, 4, 3))],
    "interpolate": [
        (lambda x, m=m, a=a: F.interpolate(x, scale_factor=(1.7, 0.6), mode=m, antialias=a), (1, 1, 4, 5))
        for m in ("bilinear", "bicubic") for a in (False, True)
    ],
    "reflection_pad": [(lambda x: F.pad(x, (2, 1, 1, 2), mode="reflect"), (1, 1, 3, 4))],
    "replication_pad": [(lambda x: F.pad(x, (2, 1, 1, 2), mode="replicate"), (1, 1, 3, 4))],
    "ctc_loss": [
        (lambda x: F.ctc_loss(x.log_softmax(2), torch.tensor([[1, 1], [2, 3]]), (5, 4), (2, 2)), (5, 2, 4)),
    ],
    "grid_sample": [
        (lambda g, m=m: F.grid_sample(PICTURE, g.tanh(), mode=m, align_corners=False),
         (1, 2, 3, 2)) for m in ("bilinear", "bicubic")
    ],
    "cumsum": [(lambda x: x.cumsum(0), (20,))],
    "embedding_bag_max": [(lambda w: F.embedding_bag(torch.tensor([[0, 1], [1, 2]]), w, mode="max"), (3, 2))],
}  # fmt: skip


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_those_of_the_forward_pass(name: str) -> None:
    torch.manual_seed(3)
    with stand_in(BY_NAME[name]):
        for function, shape in GRADIENTS[name]:
            x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
            assert torch.autograd.gradcheck(function, (x,), fast_mode=True)


# What they are made of.

NONDETERMINISTIC = {
    "index_add", "scatter", "scatter_add", "scatter_reduce", "index_copy", "index_reduce", "put", "_index_put_impl",
    "histc", "kthvalue", "median", "nanmedian", "cumsum", "bincount", "embedding_dense_backward",
    "_embedding_bag_dense_backward", "max_unpool2d", "max_unpool3d", "nll_loss2d_forward", "_ctc_loss_backward",
    "grid_sampler_2d_backward", "grid_sampler_3d_backward", "cumprod", "logcumsumexp", "masked_scatter", "unique",
    "index_put", "topk", "segment_reduce", "index_fill",
}  # fmt: skip
"""Operators with a CUDA kernel that adds or writes in the order of the threads, without their underscore."""


class Watched(TorchDispatchMode):
    """Refuses such operators, but where they cannot matter: whole numbers, or cells that are all different."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        plain = name.rstrip("_")
        assert not plain.endswith("_backward"), f"a kernel calls {func}"
        if plain == "index_put":
            (flat,) = [torch.stack(torch.broadcast_tensors(*args[1]), -1).flatten(0, -2)]
            assert len(flat.unique(dim=0)) == len(flat) and not (args[3:] and args[3]), "cells that are all different"
        elif plain in ("cumsum", "bincount"):
            assert (not args[0].is_floating_point() and len(args) < 3) or args[1] is None, func
        else:
            assert plain not in NONDETERMINISTIC, f"a kernel calls {func}"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", BY_NAME)
def test_nothing_inside_depends_on_the_order_of_threads(name: str) -> None:
    def watched(call: Any) -> Any:
        with Watched():
            return call()

    with stand_in(BY_NAME[name], watched) as calls:
        run(name, torch.float32)
    assert sum(calls.values())


def test_the_watch_sees_a_kernel_that_does() -> None:
    with pytest.raises(AssertionError, match="index_add"), Watched():
        torch.zeros(3).index_add_(0, torch.tensor([1]), torch.ones(1))
    with pytest.raises(AssertionError, match="all different"), Watched():
        torch.zeros(3).index_put_((torch.tensor([1, 1]),), torch.ones(2))
    with pytest.raises(AssertionError), Watched():
        torch.zeros(3).cumsum(0)


# What the table leaves to torch.


def test_other_arguments_go_to_torchs_own_kernel_whole() -> None:
    numbers = torch.arange(6).view(2, 3)
    with stand_in(BY_NAME["cumsum"]) as calls:
        assert torch.cumsum(numbers, 1).tolist() == [[0, 1, 3], [3, 7, 12]]
        out = torch.empty(2, 3, dtype=torch.int64)
        assert torch.cumsum(numbers, dim=0, dtype=torch.int64, out=out) is out and out.tolist() == [
            [0, 1, 2],
            [3, 5, 7],
        ]
        assert numbers.clone().cumsum_(1)[0].tolist() == [0, 1, 3]
    assert not sum(calls.values())
    with stand_in(BY_NAME["bincount"]) as calls:
        assert torch.bincount(torch.tensor([1, 1]), minlength=3).tolist() == [0, 2, 0] and not sum(calls.values())
    with stand_in(BY_NAME["scatter_reduce_prod"]) as calls:
        index, values = torch.tensor([0, 0]), torch.tensor([2.0, 5.0])
        assert torch.ones(1).scatter_reduce(0, index, values, "amax", include_self=False).tolist() == [5]
        assert torch.nn.functional.embedding_bag(torch.tensor([[0, 0]]), torch.ones(1, 2), mode="sum").tolist() == [
            [2, 2]
        ]
    assert not sum(calls.values())


# Bad input.


def test_bad_input_is_said_in_the_users_numbers() -> None:
    with stand_in(BY_NAME["put"]), pytest.raises(IndexError, match="outside of a tensor with 3 elements"):
        torch.zeros(3).put_(torch.tensor([3]), torch.ones(1))
    with stand_in(BY_NAME["max_unpool"]), pytest.raises(RuntimeError, match=r"invalid max index: output_size=\[2, 2\]"):
        F.max_unpool2d(torch.ones(1, 1, 1, 1), torch.tensor([[[[9]]]]), 2)
    with stand_in(BY_NAME["kthvalue"]), pytest.raises(RuntimeError, match="k=4 is out of range"):
        torch.zeros(3).kthvalue(4)
    with stand_in(BY_NAME["bincount"]), pytest.raises(RuntimeError, match="negative number -1"):
        torch.bincount(torch.tensor([-1]), torch.ones(1))


def test_cases_are_drawn_alike_for_every_device() -> None:
    torch.manual_seed(0)
    one = Inputs("cpu", torch.float32).randn(5)
    torch.manual_seed(0)
    assert torch.equal(one, operator_cases.Inputs("cpu", torch.float64).randn(5).float())
