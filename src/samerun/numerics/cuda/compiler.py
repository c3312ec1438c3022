"""CUDA source to machine code, by NVRTC, which torch's CUDA builds bring; kept on disk.

NVRTC has no files: what a source includes is written in its place.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from samerun.base.errors import SamerunError
from samerun.base.files import write_file_atomically
from samerun.numerics.cuda.libraries import call_nvrtc, load_nvrtc

NAMES = ("elementwise", "sums", "segments", "softmax", "norms", "products", "random")
"""Files of native/cuda, each compiled alone when one of its kernels is first used."""

FLAGS = (
    "--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "--device-int128",
    "--diag-suppress=177",
)  # fmt: skip
"""No contraction, subnormals kept, no approximate division or root. (177: a shared function that is not used here.)"""

_INCLUDE = re.compile(r'\s*#include "(.*)"')
_FOLDERS = (Path(__file__).with_name("native"), Path(__file__).parents[4] / "native")
"""Beside this file where samerun is installed; in a checkout, where the C sources lie."""


@cache
def read_source_with_includes(source_name: str) -> str:
    """The source of one of `NAMES`. Raises FileNotFoundError where it was not installed."""
    folder = next((place for place in _FOLDERS if (place / "cuda" / f"{source_name}.cu").exists()), _FOLDERS[0])
    return _inline_includes((folder / "cuda" / f"{source_name}.cu").resolve(), set())


def _inline_includes(path: Path, seen: set[Path]) -> str:
    if path in seen:
        return ""
    seen.add(path)
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        found = _INCLUDE.match(line)
        lines.append(_inline_includes((path.parent / found[1]).resolve(), seen) if found else line)
    return "\n".join(lines)


def choose_architecture(capability: tuple[int, int]) -> str:
    """What to compile for on a device of this compute capability: "sm_90"; or "compute_90" (PTX, for which the driver
    finishes the work), where this NVRTC is older than the device.
    """
    wanted = 10 * capability[0] + capability[1]
    known = sorted(number for number in list_nvrtc_architectures() if number <= wanted)
    # Machine code runs on devices of the same major version that are as new or newer; PTX on all that are newer.
    same_major = [number for number in known if number // 10 == capability[0]]
    if same_major:
        return f"sm_{same_major[-1]}"
    return f"compute_{known[-1]}" if known else f"sm_{wanted}"


@cache
def list_nvrtc_architectures() -> tuple[int, ...]:
    """The compute capabilities that NVRTC knows, such as 90 for 9.0."""
    count = ctypes.c_int()
    call_nvrtc("nvrtcGetNumSupportedArchs", ctypes.byref(count))
    found = (ctypes.c_int * count.value)()
    call_nvrtc("nvrtcGetSupportedArchs", found)
    return tuple(found)


def compile_cuda_source_cached(name: str, source: str, architecture: str) -> bytes:
    """Machine code ("sm_90") or PTX ("compute_90") of `source`; from the cache where it was compiled before.

    Raises SamerunError where NVRTC is missing, or refuses.
    """
    major, minor = ctypes.c_int(), ctypes.c_int()
    call_nvrtc("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
    version = f"{major.value}.{minor.value}"
    key = hashlib.sha256("\0".join([version, architecture, *FLAGS, source]).encode()).hexdigest()
    kept = _cuda_cache_path() / f"{name}-{architecture}-{key[:32]}"
    try:
        return kept.read_bytes()
    except OSError:
        pass
    found = _compile_with_nvrtc(name, source, [f"--gpu-architecture={architecture}", *FLAGS])
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_file_atomically(kept, found)
    except OSError:  # a home that cannot be written: compile again the next time
        pass
    return found


def _cuda_cache_path() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("samerun", appauthor=False)) / "cuda"


def _compile_with_nvrtc(name: str, source: str, options: Sequence[str]) -> bytes:
    """What NVRTC makes: PTX for a virtual architecture, machine code for a real one."""
    program = ctypes.c_void_p()
    call_nvrtc("nvrtcCreateProgram", ctypes.byref(program), source.encode(), f"{name}.cu".encode(), 0, None, None)
    try:
        given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        if load_nvrtc().nvrtcCompileProgram(program, len(options), given) != 0:
            log = _read_from_program("ProgramLog", program).decode(errors="replace")
            raise SamerunError(f"NVRTC refuses {name}.cu: {log.strip(chr(0))}")
        return _read_from_program("PTX" if "=compute_" in options[0] else "CUBIN", program)
    finally:
        call_nvrtc("nvrtcDestroyProgram", ctypes.byref(program))


def _read_from_program(nvrtc_getter_suffix: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    call_nvrtc(f"nvrtcGet{nvrtc_getter_suffix}Size", program, ctypes.byref(size))
    found = ctypes.create_string_buffer(size.value)
    call_nvrtc(f"nvrtcGet{nvrtc_getter_suffix}", program, found)
    return found.raw
