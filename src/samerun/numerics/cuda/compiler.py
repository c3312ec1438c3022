"""CUDA source to machine code, by NVRTC through cuda-bindings, which torch's CUDA builds bring; kept on disk.

NVRTC has no files: what a source includes is written in its place.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from samerun.base.errors import SamerunError
from samerun.base.files import write_file_atomically

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


def compile_cuda_source_cached(name: str, source: str, architecture: str) -> bytes:
    """Machine code ("sm_90") or PTX ("compute_90") of `source`; from the cache where it was compiled before.

    Raises SamerunError where NVRTC is missing, or refuses.
    """
    nvrtc = _import_nvrtc_or_explain()
    version = "{}.{}".format(*_unwrap_nvrtc_result(nvrtc, nvrtc.nvrtcVersion()))
    key = hashlib.sha256("\0".join([version, architecture, *FLAGS, source]).encode()).hexdigest()
    kept = _cuda_cache_folder() / f"{name}-{architecture}-{key[:32]}"
    try:
        return kept.read_bytes()
    except OSError:
        pass
    found = _compile_with_nvrtc(nvrtc, name, source, [f"--gpu-architecture={architecture}", *FLAGS])
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_file_atomically(kept, found)
    except OSError:  # a home that cannot be written: compile again the next time
        pass
    return found


def _cuda_cache_folder() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("samerun", appauthor=False)) / "cuda"


def _import_nvrtc_or_explain() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        raise SamerunError(
            f"portable kernels on CUDA are compiled by NVRTC, which is not there ({str(error).splitlines()[0]}).",
            "pip install cuda-bindings nvidia-cuda-nvrtc, of torch's CUDA version (torch.version.cuda).",
        ) from None
    return nvrtc


def _unwrap_nvrtc_result(nvrtc: Any, status_and_values: tuple[Any, ...]) -> tuple[Any, ...]:
    error, *values = status_and_values
    if int(error) != 0:
        raise SamerunError(f"NVRTC: {nvrtc.nvrtcGetErrorString(error)[1].decode()}.")
    return tuple(values)


def _compile_with_nvrtc(nvrtc: Any, name: str, source: str, options: Sequence[str]) -> bytes:
    """What NVRTC makes: PTX for a virtual architecture, machine code for a real one."""
    (program,) = _unwrap_nvrtc_result(
        nvrtc, nvrtc.nvrtcCreateProgram(source.encode(), f"{name}.cu".encode(), 0, [], [])
    )
    try:
        (error,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        if int(error) != 0:
            (size,) = _unwrap_nvrtc_result(nvrtc, nvrtc.nvrtcGetProgramLogSize(program))
            log = b" " * size
            nvrtc.nvrtcGetProgramLog(program, log)
            raise SamerunError(f"NVRTC refuses {name}.cu: {log.decode(errors='replace').strip(chr(0))}")
        what = "PTX" if "=compute_" in options[0] else "CUBIN"
        (size,) = _unwrap_nvrtc_result(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program))
        found = b" " * size
        _unwrap_nvrtc_result(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, found))
        return bytes(found)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
