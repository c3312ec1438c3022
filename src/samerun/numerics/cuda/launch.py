"""Kernels put on a device's current stream. Nothing waits, so that calls can be captured in a CUDA graph."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch

from samerun.numerics.cuda.compiler import (
    choose_architecture,
    compile_cuda_source_cached,
    read_source_with_includes,
)
from samerun.numerics.cuda.libraries import call_driver

Address: TypeAlias = int
"""Of memory of the device: `Tensor.data_ptr()`, or 0."""
THREADS = 256
MOST_BLOCKS = 1 << 16
"""Of a kernel whose threads take several values each."""

_STREAM_CAPTURE_RELAXED = 2

_functions: dict[tuple[int, str], Any] = {}
_modules: dict[tuple[int, str], Any] = {}
_thread = threading.local()
_multiprocessors: dict[int, int] = {}


def launch_kernel(
    device: torch.device,
    source_file: str,
    kernel_name: str,
    num_blocks: int,
    block_shape: Sequence[int],
    *arguments: Any,
) -> None:
    """Start a kernel of native/cuda/`source_file`.cu. `block_shape`: threads in x (and y). `arguments`: ctypes values.

    Raises CudaError for what the driver refuses, and SamerunError where the sources cannot be compiled.
    """
    if num_blocks == 0:
        return
    device_index = torch.cuda.current_device() if device.index is None else device.index
    with torch.cuda.device(device_index):
        _set_thread_context_if_none(device_index)
        function = _functions.get((device_index, kernel_name)) or _load_kernel(device_index, source_file, kernel_name)
        places = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(each) for each in arguments))
        x, y = (*block_shape, 1)[:2]
        stream = torch.cuda.current_stream(device_index).cuda_stream
        call_driver("cuLaunchKernel", function, num_blocks, 1, 1, x, y, 1, 0, stream, ctypes.addressof(places), None)


def launch_grid_stride(device: torch.device, source_file: str, kernel_name: str, n: int, *arguments: Any) -> None:
    """Start a kernel whose threads share n values in a grid-stride loop."""
    launch_kernel(device, source_file, kernel_name, min(-(-n // THREADS), MOST_BLOCKS), (THREADS,), *arguments)


def allocate_uninitialized(device: torch.device, n: int, dtype: torch.dtype) -> torch.Tensor:
    """Memory that a kernel of this stream may use; it goes back to torch when the tensor is dropped."""
    return torch.empty(n, dtype=dtype, device=device)


def count_multiprocessors(device: torch.device) -> int:
    """How many multiprocessors the device has."""
    device_index = torch.cuda.current_device() if device.index is None else device.index
    if device_index not in _multiprocessors:
        _multiprocessors[device_index] = torch.cuda.get_device_properties(device_index).multi_processor_count
    return _multiprocessors[device_index]


def _set_thread_context_if_none(device_index: int) -> None:
    """torch gives a thread the device's context with its first call there, which may not have been made yet."""
    if device_index in _devices_of_thread():
        return
    context = ctypes.c_void_p()
    call_driver("cuCtxGetCurrent", ctypes.byref(context))
    if not context.value:
        device = ctypes.c_int()
        call_driver("cuDeviceGet", ctypes.byref(device), device_index)
        call_driver("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        call_driver("cuCtxSetCurrent", context)
    _devices_of_thread().add(device_index)


def _devices_of_thread() -> set[int]:
    if not hasattr(_thread, "devices"):
        _thread.devices = set()
    found: set[int] = _thread.devices
    return found


def _load_kernel(device_index: int, source_file: str, kernel_name: str) -> Any:
    """Compile and load the file for this device, and keep all that is asked of it."""
    # While a CUDA graph is captured, loading counts as a call that may wait, which would end the capture with an error;
    # in this mode it is let through, as torch does for memory that it asks for.
    mode = ctypes.c_int(_STREAM_CAPTURE_RELAXED)
    call_driver("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    try:
        module = _modules.get((device_index, source_file))
        if module is None:
            architecture = choose_architecture(torch.cuda.get_device_capability(device_index))
            code = compile_cuda_source_cached(source_file, read_source_with_includes(source_file), architecture)
            module = ctypes.c_void_p()
            call_driver("cuModuleLoadData", ctypes.byref(module), code)
            _modules[device_index, source_file] = module
        function = ctypes.c_void_p()
        call_driver("cuModuleGetFunction", ctypes.byref(function), module, kernel_name.encode())
    finally:
        call_driver("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    _functions[device_index, kernel_name] = function
    return function
