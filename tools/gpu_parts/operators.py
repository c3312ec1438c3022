"""Part 4: deterministic operators have the same bits in every repeat, and the values of float64 on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import bench_cuda
import torch
from cuda_clock import CaseInputs
from deterministic_stand_in import stand_in
from operator_cases import CASES, Inputs
from torch import Tensor
from torch.utils import _pytree

from gpu_parts.checks import Check, Facts, PartDevice
from gpu_parts.costs import find_operator
from samerun.control.deterministic_kernels import install
from samerun.control.deterministic_kernels.table import OPERATORS

BY_NAME = {operator.name: operator for operator in OPERATORS}
REPEATS, EMULATED_REPEATS = 200, 3
SHARES, EMULATED_SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0), (0.0005, 0.001)
"""Of the sizes that bench_cuda.py measures: five shapes of each operator."""
CPU_ONLY = {"resize_quantized"}


def make_checks(device: PartDevice) -> Iterator[Check]:
    for name in BY_NAME:
        if device.is_emulated or name not in CPU_ONLY:
            yield Check(f"cases of {name}", partial(check_cases, name, device), 120)
    for name in bench_cuda.CASES:
        yield Check(f"shapes of {name}", partial(check_shapes, name, device), 120)


@contextmanager
def installed() -> Iterator[None]:
    install.install()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
        install.uninstall()


def deterministic_mode(operator: str, device: PartDevice) -> AbstractContextManager[Any]:
    return stand_in(BY_NAME[operator]) if device.is_emulated else installed()


def run_cases(name: str, dtype: torch.dtype, device: str) -> list[Tensor]:
    torch.manual_seed(7)
    return [out for case in CASES[name] for out in case(Inputs(device, dtype))]


def check_cases(name: str, device: PartDevice) -> Facts:
    """What users do with it: crowded, odd, empty, strided, with NaN."""
    torch.set_num_threads(1)  # with two, torch's own put_ and max_unpool on the CPU race for cells
    repeats = EMULATED_REPEATS if device.is_emulated else REPEATS
    wanted = run_cases(name, torch.float64, "cpu")
    with deterministic_mode(name, device):
        found = run_cases(name, torch.float64, device.torch_name)
        first = run_cases(name, torch.float32, device.torch_name)
        for number in range(1, repeats):
            require_same_bits(run_cases(name, torch.float32, device.torch_name), first, f"repeat {number}")
    require_close(found, wanted, 1e-9)
    return {"note": f"{len(first)} results, {repeats} times"}


def check_shapes(name: str, device: PartDevice) -> Facts:
    torch.set_num_threads(1)
    repeats = EMULATED_REPEATS if device.is_emulated else REPEATS
    shares = EMULATED_SHARES if device.is_emulated else SHARES
    operator = find_operator(name)
    for share in shares:
        torch.manual_seed(7)
        with deterministic_mode(operator, device):
            work = bench_cuda.CASES[name](CaseInputs(device.torch_name, torch.float32, share))
            first = [each.clone() for each in tensors_of(work())]
            for number in range(1, repeats):
                require_same_bits(tensors_of(work()), first, f"repeat {number} at {share:.4g} of the size")
    found, wanted = (compute_in_float64(name, operator, device, of) for of in (device.torch_name, None))
    require_close(found, wanted, 1e-9)
    return {"note": f"{len(shares)} shapes, {repeats} times"}


def compute_in_float64(name: str, operator: str, device: PartDevice, where: str | None) -> list[Tensor]:
    """The least shape; `where` None: by torch on the CPU."""
    share = (EMULATED_SHARES if device.is_emulated else SHARES)[0]
    torch.manual_seed(7)
    if where is None:
        return tensors_of(bench_cuda.CASES[name](CaseInputs("cpu", torch.float64, share))())
    with deterministic_mode(operator, device):
        return tensors_of(bench_cuda.CASES[name](CaseInputs(where, torch.float64, share))())


def tensors_of(result: object) -> list[Tensor]:
    return [each for each in _pytree.tree_leaves(result) if isinstance(each, Tensor)]


def require_same_bits(got: list[Tensor], want: list[Tensor], where: str) -> None:
    """On the device: only one number is asked for."""
    assert len(got) == len(want)
    for number, (one, other) in enumerate(zip(got, want, strict=True)):
        if one.numel() and not torch.equal(as_words(one), as_words(other)):
            differing = int((as_words(one) != as_words(other)).sum())
            raise AssertionError(f"{where}: result {number} differs in {differing} bytes of {one.numel()} values")


def as_words(x: Tensor) -> Tensor:
    return x.detach().contiguous().reshape(-1).view(torch.uint8)


def require_close(got: list[Tensor], want: list[Tensor], tolerance: float) -> None:
    for one, other in zip(got, want, strict=True):
        if other.is_floating_point():
            torch.testing.assert_close(one.cpu(), other, rtol=tolerance, atol=tolerance, equal_nan=True)
