"""Kernels put on a device's current stream. Nothing waits, so that calls can be captured in a CUDA graph."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch

from samerun.base.errors import SamerunError
from samerun.numerics.cuda.compiler import compile_cuda_source_cached, read_source_with_includes

Address: TypeAlias = int
"""Of memory of the device: `Tensor.data_ptr()`, or 0."""
THREADS = 256
MOST_BLOCKS = 1 << 16
"""Of a kernel whose threads take several values each."""

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

    Raises SamerunError for what the driver refuses, and where the sources cannot be compiled.
    """
    if num_blocks == 0:
        return
    driver = _import_driver_bindings()
    device_index = torch.cuda.current_device() if device.index is None else device.index
    with torch.cuda.device(device_index):
        _set_thread_context_if_none(driver, device_index)
        function = _functions.get((device_index, kernel_name)) or _load_kernel(
            driver, device_index, source_file, kernel_name
        )
        places = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(each) for each in arguments))
        x, y = (*block_shape, 1)[:2]
        stream = torch.cuda.current_stream(device_index).cuda_stream
        _unwrap_driver_result(
            driver,
            driver.cuLaunchKernel(function, num_blocks, 1, 1, x, y, 1, 0, stream, ctypes.addressof(places), 0),
        )


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


def _import_driver_bindings() -> Any:
    from cuda.bindings import driver

    return driver


def _set_thread_context_if_none(driver: Any, device_index: int) -> None:
    """torch gives a thread the device's context with its first call there, which may not have been made yet."""
    if getattr(_thread, "has_context", False):
        return
    (context,) = _unwrap_driver_result(driver, driver.cuCtxGetCurrent())
    if int(context) == 0:
        (device,) = _unwrap_driver_result(driver, driver.cuDeviceGet(device_index))
        (context,) = _unwrap_driver_result(driver, driver.cuDevicePrimaryCtxRetain(device))
        _unwrap_driver_result(driver, driver.cuCtxSetCurrent(context))
    _thread.has_context = True


def _load_kernel(driver: Any, device_index: int, source_file: str, kernel_name: str) -> Any:
    """Compile and load the file for this device, and keep all that is asked of it."""
    module = _modules.get((device_index, source_file))
    if module is None:
        major, minor = torch.cuda.get_device_capability(device_index)
        code = compile_cuda_source_cached(source_file, read_source_with_includes(source_file), f"sm_{major}{minor}")
        module = _modules[device_index, source_file] = _unwrap_driver_result(driver, driver.cuModuleLoadData(code))[0]
    found = _unwrap_driver_result(driver, driver.cuModuleGetFunction(module, kernel_name.encode()))[0]
    _functions[device_index, kernel_name] = found
    return found


def _unwrap_driver_result(driver: Any, status_and_values: tuple[Any, ...]) -> tuple[Any, ...]:
    error, *values = status_and_values
    if int(error) != 0:
        words = driver.cuGetErrorString(error)[1]
        raise SamerunError(f"CUDA: {words.decode() if words else error}.")
    return tuple(values)
