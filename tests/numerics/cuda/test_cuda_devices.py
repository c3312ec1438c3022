"""Handlers of the table on tensors of another device than the CPU: nothing they make may stay behind there.

Every operator that the cases of portable_operator_cases.py call, forward and backward, is called again by the table
for CUDA with tensors of the meta device, which have shapes and no values, and refuse to meet the CPU's. Kernels are
not started.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from portable_cases import run
from portable_operator_cases import ALL_CASES
from torch import Tensor
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

import samerun
from samerun.base.errors import CudaError
from samerun.numerics.aten_handlers import declare
from samerun.numerics.aten_handlers.table import resolve_runner_unless_exact
from samerun.numerics.cuda import compiler, elementwise, launch, libraries, products, rows, sums
from samerun.numerics.dispatch import mode
from samerun.numerics.kernels import random as kernel_random
from samerun.numerics.kernels.tensors import STORAGE_TYPES

WAITS = {
    "aten._local_scalar_dense.default", "aten.nonzero.default", "aten.equal.default", "aten.index.Tensor",
    "aten.bincount.default",
    "aten.histc.default", "aten._ctc_loss.Tensor", "aten._ctc_loss.default", "aten._ctc_loss_backward.Tensor",
    "aten._ctc_loss_backward.default", "aten.multilabel_margin_loss_forward.default",
    "aten.multilabel_margin_loss_backward.default",
}  # fmt: skip
"""Operators that ask the device for a number: because a program asks for one with them, or how long labels are."""


class Noting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


class Resolving(TorchDispatchMode):
    """Every operator by the table for CUDA, as the portable mode has it, but on tensors without values."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        handler = None if func.namespace == "prim" else resolve_runner_unless_exact(func, "cuda")
        return func(*args, **(kwargs or {})) if handler is None else handler(self, func, args, kwargs or {})


def _type(operator: str, *tensors: Tensor, supported_dtypes: Any = ()) -> torch.dtype:
    """`require_opmath_dtype` without its look at the device."""
    return torch.float32 if tensors[0].dtype in STORAGE_TYPES else tensors[0].dtype


@pytest.fixture
def _no_kernels() -> Iterator[None]:
    with ExitStack() as stack:
        for module in (launch, elementwise, rows, sums, products):
            for name in ("launch_kernel", "launch_grid_stride"):
                if hasattr(module, name):
                    stack.enter_context(mock.patch.object(module, name, lambda *given: None))
        stack.enter_context(mock.patch.object(products, "count_multiprocessors", lambda device: 132))
        yield


def elsewhere(given: Any) -> Any:
    """The same arguments on the meta device."""

    def one(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")
        return torch.device("meta") if isinstance(leaf, torch.device) else leaf

    return _pytree.tree_map(one, given)


@pytest.mark.usefixtures("_no_kernels")
@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter")
@pytest.mark.parametrize(("name", "function", "inputs"), ALL_CASES, ids=[case[0] for case in ALL_CASES])
def test_everything_stays_on_the_device(
    name: str, function: Callable[..., Any], inputs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = torch.get_default_dtype()
    with samerun.portable(), Noting() as noting:
        run(function, inputs, torch.float32)
    torch.set_default_dtype(before)
    for module in list(sys.modules.values()):
        if module.__name__.startswith("samerun.numerics") and hasattr(module, "require_opmath_dtype"):
            monkeypatch.setattr(module, "require_opmath_dtype", _type)
    for func, args, kwargs in noting.calls:
        tensors = [leaf for leaf in _pytree.tree_leaves(args) if isinstance(leaf, Tensor)]
        if func.namespace != "aten" or not tensors or str(func) in WAITS or "lift_fresh" in str(func):
            continue
        if "index_put" in str(func) and any(each.dtype is torch.bool for each in tensors):
            continue  # as many values as the mask has places: a number that the device is asked for
        given, named = elsewhere((args, kwargs))
        with Resolving():
            found = func(*given, **named)
        for leaf in _pytree.tree_leaves(found):
            assert not isinstance(leaf, Tensor) or leaf.is_meta, func


class DeviceGenerator:
    """What `stream.draw` asks of a generator of a CUDA device."""

    device = torch.device("cuda")

    def __init__(self) -> None:
        self.offset = 0

    def initial_seed(self) -> int:
        return 7

    def get_offset(self) -> int:
        return self.offset

    def set_offset(self, offset: int) -> None:
        self.offset = offset


def test_a_generator_of_a_device_counts_its_own_draws() -> None:
    generator: Any = DeviceGenerator()
    assert [kernel_random.advance_generator(generator) for _ in range(3)] == [(7, 0), (7, 1), (7, 2)]
    assert generator.offset == 12


def test_draws_for_a_device_move_the_stream_of_the_cpu() -> None:
    torch.manual_seed(3)
    first = [declare.advance_generator_for_draw(None, device)[:2] for device in ("cpu", "cuda", "cuda:1", None)]
    assert first == [(3, 0), (3, 1), (3, 2), (3, 3)]


class StubDriver:
    """The driver's calls: each returns an error number and writes what it gives to an address."""

    def __init__(self, current_context: int | None) -> None:
        self.current_context = current_context
        self.seen: list[Any] = []
        self.error = 0

    def cuCtxGetCurrent(self, out: Any) -> int:
        out._obj.value = self.current_context
        return 0

    def cuDeviceGet(self, out: Any, index: int) -> int:
        out._obj.value = index
        return 0

    def cuDevicePrimaryCtxRetain(self, out: Any, device: Any) -> int:
        self.seen.append(f"context of device {device.value}")
        out._obj.value = 77
        return 0

    def cuCtxSetCurrent(self, context: Any) -> int:
        self.current_context = context.value
        return 0

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> int:
        self.seen.append(("capture mode", mode._obj.value))
        mode._obj.value = 0 if mode._obj.value else 2
        return 0

    def cuModuleLoadData(self, out: Any, code: bytes) -> int:
        self.seen.append(code)
        out._obj.value = 5
        return 0

    def cuModuleGetFunction(self, out: Any, module: Any, name: bytes) -> int:
        self.seen.append((module.value, name.decode()))
        out._obj.value = len(name)
        return 0

    def cuLaunchKernel(self, function: Any, *how: Any) -> int:
        *sizes, stream, places, extra = how
        first = ctypes.c_int64.from_address(ctypes.c_void_p.from_address(places).value or 0).value
        self.seen.append((function.value, sizes, stream, first, extra))
        return self.error

    def cuGetErrorString(self, error: int, out: Any) -> int:
        out._obj.value = b"out of luck"
        return 0


@pytest.mark.parametrize("has_context", [True, False])
def test_what_the_driver_is_told(has_context: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    driver, compiled = StubDriver(3 if has_context else None), []
    monkeypatch.setattr(libraries, "load_driver", lambda: driver)
    monkeypatch.setattr(launch, "choose_architecture", lambda capability: f"sm_{capability[0]}{capability[1]}")
    monkeypatch.setattr(launch, "compile_cuda_source_cached", lambda *given: compiled.append(given[2]) or b"code")
    monkeypatch.setattr(launch, "_functions", {})
    monkeypatch.setattr(launch, "_modules", {})
    monkeypatch.setattr(launch, "_thread", threading.local())
    monkeypatch.setattr(torch.cuda, "device", lambda index: nullcontext())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda index: SimpleNamespace(cuda_stream=17))
    device = torch.device("cuda:1")
    launch.launch_kernel(device, "sums", "reduce_column_blocks32", 3, (32, 32), ctypes.c_int64(41))
    launch.launch_grid_stride(device, "sums", "fill32", 1000, ctypes.c_int64(42))
    launch.launch_kernel(device, "sums", "fill32", 0, (32,))
    assert compiled == ["sm_90"], "a file is compiled once"
    assert driver.current_context == (3 if has_context else 77)
    assert driver.seen == [
        *([] if has_context else ["context of device 1"]),
        ("capture mode", 2),
        b"code",
        (5, "reduce_column_blocks32"),
        ("capture mode", 0),
        (len("reduce_column_blocks32"), [3, 1, 1, 32, 32, 1, 0], 17, 41, None),
        ("capture mode", 2),
        (5, "fill32"),
        ("capture mode", 0),
        (len("fill32"), [4, 1, 1, 256, 1, 1, 0], 17, 42, None),
    ]
    driver.error = 700
    with pytest.raises(CudaError, match=r"CUDA: out of luck \(error 700\)"):
        launch.launch_grid_stride(device, "sums", "fill32", 1, ctypes.c_int64(0))


def test_a_device_that_fails_is_no_operator_that_is_not_portable(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any) -> None:
        raise CudaError("CUDA: an illegal memory access was encountered.")

    monkeypatch.setattr(mode, "_resolved", {})
    monkeypatch.setattr(mode, "resolve_runner_unless_exact", lambda func: fail)
    with samerun.portable(unsupported="warn"), pytest.raises(CudaError, match="illegal memory access"):
        torch.ones(3).exp()


@pytest.mark.parametrize(
    ("capability", "known", "chosen"),
    [
        ((9, 0), (80, 90, 100), "sm_90"), ((8, 6), (75, 80, 90), "sm_80"), ((10, 3), (90, 100, 120), "sm_100"),
        ((12, 0), (80, 90), "compute_90"), ((7, 0), (80, 90), "sm_70"),
    ],
)  # fmt: skip
def test_a_device_that_is_newer_than_nvrtc(
    capability: tuple[int, int], known: tuple[int, ...], chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "list_nvrtc_architectures", lambda: known)
    assert compiler.choose_architecture(capability) == chosen


def test_nvrtc_is_looked_for_where_torch_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = ["nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "torch/lib/libnvrtc-0123abcd.so.12",
              "nvidia/cu13/lib/libnvrtc.so.13",
              "torch/lib/libnvrtc-builtins.so.12.9"]  # fmt: skip
    for place in places:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_bytes(b"")
    monkeypatch.delenv(libraries.NVRTC_VARIABLE, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    found = list(libraries.nvrtc_candidates())
    assert found[:3] == ["libnvrtc.so.12", *(str(tmp_path / place) for place in places[:2])]
    assert not [name for name in found if "13" in name.removeprefix(str(tmp_path)) or "builtins" in name]
    monkeypatch.setenv(libraries.NVRTC_VARIABLE, "/elsewhere/libnvrtc.so")
    assert list(libraries.nvrtc_candidates()) == ["/elsewhere/libnvrtc.so"]
