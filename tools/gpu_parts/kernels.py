"""Part 1: NVRTC compiles every CUDA source, the driver loads every kernel, and one starts wherever torch's do."""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial

import torch

from gpu_parts.checks import Check, Facts, PartDevice, SkippedCheck, work_folder
from samerun.base.errors import SamerunError
from samerun.numerics.cuda import compiler, elementwise, launch, libraries

ARCHITECTURES = (80, 90, 100)
MAX_THREADS, SHARED_BYTES, LOCAL_BYTES, REGISTERS = 0, 1, 3, 4
"""CUfunction_attribute."""


def make_checks(device: PartDevice) -> Iterator[Check]:
    for name in compiler.NAMES:
        if device.is_emulated:
            yield Check(f"build {name} for the CPU", partial(build_for_cpu, name), 300)
        else:
            yield Check(f"load {name}", partial(load_on_device, name), 120)
    if not device.is_emulated:
        yield Check("start a kernel", start_on_default_stream)
        yield Check("start on a stream of the program", start_on_own_stream)
        yield Check("start in a thread", start_in_thread)
        yield Check("load while a graph is captured", load_while_capturing)
        yield Check("load PTX, as for a device that NVRTC does not know", load_ptx)
        yield Check("start on every other device", start_on_other_devices)
    for name in compiler.NAMES:
        for number in ARCHITECTURES:
            yield Check(f"compile {name} for sm_{number}", partial(compile_for, name, number), 120)


def list_entries(name: str) -> dict[str, int]:
    """The kernels of a source, and the most threads of a block of each, from its PTX."""
    oldest = min(number for number in compiler.list_nvrtc_architectures() if number >= 80)
    source = compiler.read_source_with_includes(name)
    ptx = compiler.compile_cuda_source_cached(name, source, f"compute_{oldest}").decode()
    found = re.findall(r"\.entry (\w+)\([^)]*\)\s*\.maxntid (\d+)", ptx)
    return {kernel: int(threads) for kernel, threads in found}


def compile_for(name: str, number: int) -> Facts:
    try:
        known = compiler.list_nvrtc_architectures()
    except SamerunError as error:
        raise SkippedCheck(error.message) from None
    if number not in known:
        raise SkippedCheck(f"this NVRTC does not know sm_{number}; it knows {', '.join(map(str, known))}")
    code = compiler.compile_cuda_source_cached(name, compiler.read_source_with_includes(name), f"sm_{number}")
    assert code.startswith(b"\x7fELF"), "no machine code"
    return {"note": f"{len(code)} bytes"}


def build_for_cpu(name: str) -> Facts:
    from cuda_emulation import built

    library = built(name, compiler.read_source_with_includes(name), work_folder("emulation"))
    assert library.emulated_launch(b"no such kernel", ctypes.c_long(1), 1, 1, None, 0) == 0
    return {}


def load_on_device(name: str) -> Facts:
    """Registers and local memory are told: a kernel that spills registers to memory is slow."""
    index = torch.cuda.current_device()
    torch.zeros(1, device="cuda")
    entries = list_entries(name)
    assert entries, "NVRTC names no kernel"
    told = []
    for kernel, threads in sorted(entries.items()):
        function = launch._load_kernel(index, name, kernel)
        most, local, registers, shared = (
            read_attribute(function, which) for which in (MAX_THREADS, LOCAL_BYTES, REGISTERS, SHARED_BYTES)
        )
        assert most >= threads, f"{kernel} is started with {threads} threads, and can have {most}"
        told.append((registers, local, shared, kernel))
    worst = max(told)
    spilling = [kernel for _, local, _, kernel in told if local > 0]
    return {
        "note": f"{len(told)} kernels; most registers {worst[0]} ({worst[3]}); local memory in {spilling or 'none'}",
        "resources": {
            kernel: dict(zip(("registers", "local", "shared"), sizes, strict=True)) for *sizes, kernel in told
        },
    }


def read_attribute(function: ctypes.c_void_p, which: int) -> int:
    value = ctypes.c_int()
    libraries.call_driver("cuFuncGetAttribute", ctypes.byref(value), which, function)
    return value.value


def fill_and_read(value: float, device: str = "cuda") -> None:
    x = torch.zeros(1000, device=device)
    elementwise.launch_fill(x.device, torch.float32, x.data_ptr(), value, x.numel())
    assert x.cpu().eq(value).all(), "the kernel did not write what it should"


def start_on_default_stream() -> None:
    fill_and_read(3.0)


def start_on_own_stream() -> None:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        fill_and_read(4.0)
    stream.synchronize()


def start_in_thread() -> None:
    run_in_thread(lambda: fill_and_read(5.0))


def run_in_thread(work: Callable[[], None]) -> None:
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def load_while_capturing() -> None:
    x = torch.zeros(1000, device="cuda")
    launch._functions.clear()
    launch._modules.clear()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        elementwise.launch_fill(x.device, torch.float32, x.data_ptr(), 6.0, x.numel())
    assert x.cpu().eq(0).all(), "the kernel ran while it was captured"
    graph.replay()
    assert x.cpu().eq(6).all(), "the graph did not run the kernel"


def load_ptx() -> None:
    torch.zeros(1, device="cuda")
    major = torch.cuda.get_device_capability()[0]
    older = max(n for n in compiler.list_nvrtc_architectures() if n <= 10 * major + 9)
    code = compiler.compile_cuda_source_cached("sums", compiler.read_source_with_includes("sums"), f"compute_{older}")
    module = ctypes.c_void_p()
    libraries.call_driver("cuModuleLoadData", ctypes.byref(module), code)
    function = ctypes.c_void_p()
    libraries.call_driver("cuModuleGetFunction", ctypes.byref(function), module, b"fill32")
    libraries.call_driver("cuModuleUnload", module)


def start_on_other_devices() -> None:
    if torch.cuda.device_count() < 2:
        raise SkippedCheck("there is one device")
    for index in range(1, torch.cuda.device_count()):
        fill_and_read(7.0, f"cuda:{index}")
        run_in_thread(partial(fill_and_read, 8.0, f"cuda:{index}"))
    assert torch.cuda.current_device() == 0
