"""NVRTC and the CUDA driver by ctypes: the libraries that torch's CUDA builds load themselves, wherever those lie.

No Python package stands between: which of them a machine has, and of which CUDA version, differs from one way of
installing torch to the next.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch

from samerun.base.errors import CudaError, SamerunError

NVRTC_VARIABLE = "SAMERUN_NVRTC"
"""Environment variable: the file of the NVRTC library, where it is not found by itself."""
KNOWN_MAJORS = ("13", "12")
"""CUDA versions whose NVRTC is tried where torch was built without CUDA (to look at what NVRTC makes)."""


@cache
def load_nvrtc() -> Any:
    """NVRTC of torch's CUDA version. Raises SamerunError where there is none."""
    tried = None
    for name in nvrtc_candidates():
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            tried = tried or error
            continue
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        library.nvrtcGetErrorString.argtypes = [ctypes.c_int]
        return library
    raise SamerunError(
        f"portable kernels on CUDA are compiled by NVRTC, which is not there ({tried}).",
        "pip install nvidia-cuda-nvrtc-cu12 (CUDA 12) or nvidia-cuda-nvrtc (13), of torch's CUDA version "
        f"(torch.version.cuda), or set {NVRTC_VARIABLE} to the path of libnvrtc.so.",
    )


def nvrtc_candidates() -> Iterator[str]:
    """Names and paths to try, the likeliest first."""
    named = os.environ.get(NVRTC_VARIABLE)
    if named:
        yield named
        return
    # The major version is torch's, if it has one: the driver may be older than a later NVRTC, and refuse its code.
    # What torch has loaded itself answers to its soname.
    built_for = torch.version.cuda
    majors = (built_for.partition(".")[0],) if built_for else KNOWN_MAJORS
    for major in majors:
        if sys.platform == "win32":
            yield f"nvrtc64_{major}0_0.dll"
            continue
        yield f"libnvrtc.so.{major}"
        for folder in sys.path:
            for below in ("nvidia/cuda_nvrtc/lib", f"nvidia/cu{major}/lib", "torch/lib"):
                # libnvrtc-0123abcd.so.12: renamed, inside the wheels that bring everything in torch/lib. Not -builtins,
                # which has eight letters too.
                found = {
                    *Path(folder, below).glob(f"libnvrtc.so.{major}*"),
                    *Path(folder, below).glob(f"libnvrtc-{'[0-9a-f]' * 8}.so.{major}*"),
                }
                yield from sorted(map(str, found))
        for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), f"/usr/local/cuda-{major}",
                     "/usr/local/cuda"):  # fmt: skip
            if home:
                yield from (f"{home}/{lib}/libnvrtc.so.{major}" for lib in ("lib64", "targets/x86_64-linux/lib", "lib"))


@cache
def load_driver() -> Any:
    """The CUDA driver, with the types of what takes more than pointers. Raises CudaError where there is none."""
    try:
        library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError as error:
        raise CudaError(f"the CUDA driver cannot be loaded ({error}).") from None
    pointer, count = ctypes.c_void_p, ctypes.c_uint
    library.cuLaunchKernel.argtypes = [pointer, *[count] * 7, pointer, pointer, pointer]
    library.cuModuleLoadData.argtypes = [pointer, ctypes.c_char_p]
    library.cuModuleGetFunction.argtypes = [pointer, pointer, ctypes.c_char_p]
    library.cuCtxSetCurrent.argtypes = [pointer]
    library.cuDevicePrimaryCtxRetain.argtypes = [pointer, ctypes.c_int]
    return library


def call_driver(function_name: str, *arguments: Any) -> None:
    """Call a function of the driver. Raises CudaError with the driver's words where it does not succeed."""
    driver = load_driver()
    error = getattr(driver, function_name)(*arguments)
    if error != 0:
        words = ctypes.c_char_p()
        driver.cuGetErrorString(error, ctypes.byref(words))
        raise CudaError(f"CUDA: {words.value.decode() if words.value else 'unknown error'} (error {error}).")


def call_nvrtc(function_name: str, *arguments: Any) -> None:
    """Call a function of NVRTC. Raises SamerunError where it does not succeed."""
    nvrtc = load_nvrtc()
    error = getattr(nvrtc, function_name)(*arguments)
    if error != 0:
        raise SamerunError(f"NVRTC: {nvrtc.nvrtcGetErrorString(error).decode()} ({function_name}).")
