"""The CUDA kernels as C++ for the CPU: what they compute, and in which order, without a GPU.

Every launch runs the threads of a block in ascending or descending order between barriers, in turns; a missing
barrier, or a result that depends on who comes first, shows as other bits.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
import unittest
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch._ops import OpOverload

from samerun.numerics.aten_handlers.checks import Runner
from samerun.numerics.aten_handlers.table import TensorKind, resolve_runner_unless_exact
from samerun.numerics.cuda import compiler, elementwise, launch, products, rows, sums
from samerun.numerics.dispatch import mode
from samerun.numerics.kernels import library

HERE = Path(__file__).with_name("cuda")
PROCESSORS = 4
"""Of the pretended device: few, so that small products are split and larger ones are not."""


@cache
def built(name: str, given: str, folder: Path) -> Any:
    """The library of one CUDA source, whose text is `given`."""
    text = f'#include "{HERE / "emulation.h"}"\n{given}\n'
    around = "".join((HERE / file).read_text(encoding="utf-8") for file in ("emulation.h", "run.h"))
    key = hashlib.sha256((text + around).encode()).hexdigest()[:16]
    file, out = folder / f"{name}-{key}.cpp", folder / f"{name}-{key}.so"
    if out.exists():
        return ctypes.CDLL(str(out))
    file.write_text(text, encoding="utf-8")
    try:
        shown = subprocess.run(["g++", "-std=gnu++17", "-E", "-P", str(file)], capture_output=True, text=True)
    except FileNotFoundError:
        raise unittest.SkipTest("needs g++") from None  # pytest skips then too
    assert not shown.returncode, shown.stderr
    kernels = re.findall(r'extern "C"\s+void\s+(\w+)\(', shown.stdout)
    assert kernels, name
    listed = " ".join(f"EMULATED({kernel})" for kernel in kernels)
    file.write_text(f'{text}\n#define EMULATED_KERNELS {listed}\n#include "{HERE / "run.h"}"\n', encoding="utf-8")
    level = ["-mfma"] if " fma " in Path("/proc/cpuinfo").read_text() else []
    flags = ["-std=gnu++17", "-O2", "-w", "-ffp-contract=off", "-fPIC", "-shared", *level]
    part = folder / f"{name}-{key}-{os.getpid()}.part"
    subprocess.run(["g++", *flags, str(file), "-o", str(part)], check=True)
    os.replace(part, out)
    return ctypes.CDLL(str(out))


class Emulator:
    """Stands in for `launch.launch_kernel`; memory is the CPU's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.launched: list[str] = []

    def launch_kernel(
        self, device: torch.device, file: str, kernel: str, blocks: int, threads: Sequence[int], *arguments: Any
    ) -> None:
        if blocks == 0:
            return
        self.launched.append(kernel)
        places = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(each) for each in arguments))
        x, y = (*threads, 1)[:2]
        done = built(file, compiler.read_source_with_includes(file), self.folder).emulated_launch(
            kernel.encode(), ctypes.c_long(blocks), x, y, places, len(self.launched) % 2
        )
        assert done, kernel

    def launch_grid_stride(self, device: torch.device, file: str, kernel: str, n: int, *arguments: Any) -> None:
        self.launch_kernel(device, file, kernel, min(-(-n // launch.THREADS), 7), (launch.THREADS,), *arguments)

    def allocate_uninitialized(self, device: torch.device, n: int, dtype: torch.dtype) -> torch.Tensor:
        found = torch.empty(n, dtype=dtype)
        return found.fill_(float("nan")) if dtype.is_floating_point else found


def resolve_for_cuda(func: OpOverload, kind: TensorKind = "cuda") -> Runner | None:
    """As for tensors of a CUDA device, where the mode asks for dense real ones of the CPU."""
    return resolve_runner_unless_exact(func, kind)


@contextmanager
def emulated(folder: Path) -> Iterator[Emulator]:
    """Inside, tensors of the CPU take the way of CUDA tensors, through emulated kernels."""
    emulator = Emulator(folder)
    with ExitStack() as stack:
        for module in (launch, elementwise, rows, sums, products):
            for name in ("launch_kernel", "launch_grid_stride", "allocate_uninitialized"):
                if hasattr(module, name):
                    stack.enter_context(mock.patch.object(module, name, getattr(emulator, name)))
        stack.enter_context(mock.patch.object(products, "count_multiprocessors", lambda device: PROCESSORS))
        stack.enter_context(mock.patch.object(library, "is_off_cpu", lambda x: True))
        stack.enter_context(mock.patch.object(mode, "_resolved", {}))
        stack.enter_context(mock.patch.object(mode, "resolve_runner_unless_exact", resolve_for_cuda))
        yield emulator
