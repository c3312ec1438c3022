"""Part 9: torch's own samples of its operators (`op_db`), forward and backward.

Under `deterministic()` every repeat has the same bits, or torch's refusal; under `portable()` the device has the bits
of the CPU, and refuses what the CPU refuses.
"""

from __future__ import annotations

import sys
import types
import unittest
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

import samerun
from gpu_parts.checks import Check, Facts, PartDevice, SkippedCheck
from samerun.numerics.kernels import library

sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=unittest.TestCase))  # type: ignore[arg-type]
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

MOST_SAMPLES, EMULATED_SAMPLES = 6, 2
MOST_EMULATED_VALUES = 1500
REPEATS = 4
DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)
OTHER_FLOATS = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
MOST_OTHER_SAMPLES = 3
MEMORY_ONLY = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted")
"""Operators whose results hold whatever stood in memory: shapes and strides alone are compared."""

WITH_OWN_STATISTICS = ("native_batch_norm", "_native_batch_norm_legit", "native_layer_norm", "native_group_norm")
"""torch's CPU kernels return other statistics than its CUDA kernels: of the type of bfloat16 and float16 inputs, and in
evaluation none. They are left out.
"""


def make_checks(device: PartDevice) -> Iterator[Check]:
    warnings.simplefilter("ignore")
    entries: dict[str, Any] = {}
    for op in op_db:
        entries.setdefault(f"{op.name} {op.variant_test_name}".strip(), op)
    for name, op in entries.items():
        yield Check(f"portable {name}", partial(compare_devices, op, device), 120)
    for word, dtype in () if device.is_emulated else OTHER_FLOATS.items():
        for name, op in entries.items():
            if dtype in op.dtypes and op.dtypes != {dtype}:
                yield Check(f"portable {name} in {word}", partial(compare_devices, op, device, dtype), 120)
    for name, op in entries.items():
        yield Check(f"deterministic {name}", partial(compare_repeats, op, device), 120)


def draw_samples(op: Any, device: PartDevice, wanted: torch.dtype | None = None) -> list[Any]:
    dtype = wanted or next((each for each in DTYPES if each in op.dtypes), None)
    if dtype is None:
        raise SkippedCheck("no sample of a common type")
    torch.manual_seed(0)
    needs_gradient = op.supports_autograd and dtype.is_floating_point
    samples = list(op.sample_inputs("cpu", dtype, requires_grad=needs_gradient))
    if device.is_emulated:
        samples = [each for each in samples if count_values(each) <= MOST_EMULATED_VALUES]
    return samples[: EMULATED_SAMPLES if device.is_emulated else MOST_OTHER_SAMPLES if wanted else MOST_SAMPLES]


def count_values(sample: Any) -> int:
    leaves = _pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    return sum(leaf.numel() for leaf in leaves if isinstance(leaf, Tensor))


def move(values: Any, device: str) -> Any:
    """A copy of every tensor on the device, which takes gradients where the original does."""

    def moved(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf.detach().clone().to(device).requires_grad_(leaf.requires_grad)
        if isinstance(leaf, torch.device) or (isinstance(leaf, str) and leaf == "cpu"):
            return torch.device(device)
        return leaf

    return _pytree.tree_map(moved, values)


def run_sample(op: Any, sample: Any, device: str, seed: int) -> list[bytes]:
    """Results and gradients, as bytes; or the kind of what was raised."""
    first, args, kwargs = move((sample.input, sample.args, sample.kwargs), device)
    torch.manual_seed(seed)
    out = op(first, *args, **kwargs)
    leaves = [each for each in _pytree.tree_leaves((first, args, kwargs)) if is_differentiable(each)]
    results = [each for each in _pytree.tree_leaves(out) if isinstance(each, Tensor)]
    parts = [encode(each, op.name) for each in _pytree.tree_leaves(out[:1] if op.name in WITH_OWN_STATISTICS else out)]
    differentiable = [each for each in results if is_differentiable(each)]
    if leaves and differentiable:
        gradients = torch.autograd.grad(
            differentiable, leaves, [torch.ones_like(each) for each in differentiable], allow_unused=True
        )
        parts += [encode(each, op.name) for each in gradients if each is not None]
    return parts


def is_differentiable(value: object) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def encode(value: object, operator: str) -> bytes:
    """Shape, type and bits; every NaN has the same."""
    if not isinstance(value, Tensor):
        return repr(value).encode() if isinstance(value, bool | int | float | complex | str) else b""
    x = value.detach()
    x = x.to_dense() if x.layout is not torch.strided else x
    x = x.resolve_conj().resolve_neg().cpu().contiguous()
    kind = f"{x.dtype}{tuple(x.shape)}".encode()
    if operator in MEMORY_ONLY:
        return kind
    x = torch.view_as_real(x) if x.is_complex() else x
    if x.is_floating_point():
        x = torch.where(x.isnan(), torch.full_like(x, float("nan")), x)
    return kind + x.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def attempt(run: Callable[[], list[bytes]], mode: AbstractContextManager[Any]) -> list[bytes] | Exception:
    """What came, or what was raised; a lost device is no answer."""
    try:
        with mode:
            return run()
    except (torch.OutOfMemoryError, getattr(torch, "AcceleratorError", torch.OutOfMemoryError)):
        raise
    except samerun.SamerunError as error:
        if not isinstance(error, samerun.NotPortableError):
            raise
        return error
    except Exception as error:
        return error


def compare_repeats(op: Any, device: PartDevice) -> Facts:
    refused = 0
    samples = draw_samples(op, device)
    for number, sample in enumerate(samples):
        run = partial(run_sample, op, sample, device.torch_name, number)
        first = attempt(run, samerun.deterministic(0))
        for repeat in range(1, REPEATS):
            again = attempt(run, samerun.deterministic(0))
            require_same(again, first, f"sample {number}, repeat {repeat}")
        refused += isinstance(first, Exception)
    return {"note": f"{len(samples)} samples, {refused} raise"}


def compare_devices(op: Any, device: PartDevice, dtype: torch.dtype | None = None) -> Facts:
    if not library.is_available():
        raise SkippedCheck("samerun's C is not built: on the CPU the reference in NumPy would take hours")
    compared, why = 0, ""
    samples = draw_samples(op, device, dtype)
    for number, sample in enumerate(samples):
        want = attempt(partial(run_sample, op, sample, "cpu", number), samerun.portable())
        with device.kernels_in_force():
            got = attempt(partial(run_sample, op, sample, device.torch_name, number), samerun.portable())
        if isinstance(want, samerun.NotPortableError):
            why = why or want.message
            assert isinstance(got, Exception), f"sample {number}: refused on the CPU, computed on the device"
            continue
        if isinstance(got, Exception) != isinstance(want, Exception) and not isinstance(got, samerun.NotPortableError):
            refusing = device.torch_name if isinstance(got, Exception) else "cpu"
            if isinstance(attempt(partial(run_sample, op, sample, refusing, number), nullcontext()), Exception):
                continue  # torch has it, or takes a number from it, on one of the two alone
        require_same(got, want, f"sample {number}")
        compared += not isinstance(want, Exception)
    if not compared:
        raise SkippedCheck("no sample is portable" if why else "no sample runs")
    return {"note": f"{compared} of {len(samples)} samples"}


def require_same(got: list[bytes] | Exception, want: list[bytes] | Exception, where: str) -> None:
    if isinstance(got, Exception) or isinstance(want, Exception):
        kinds = [f"{type(x).__name__}: {x}" if isinstance(x, Exception) else "a result" for x in (got, want)]
        assert isinstance(got, Exception) and isinstance(want, Exception), f"{where}: {kinds[0]} instead of {kinds[1]}"
        return
    assert len(got) == len(want), f"{where}: {len(got)} results instead of {len(want)}"
    for number, (one, other) in enumerate(zip(got, want, strict=True)):
        if one != other:
            count = sum(a != b for a, b in zip(one, other, strict=False))
            raise AssertionError(f"{where}, result {number}: {count} of {len(other)} bytes differ")
