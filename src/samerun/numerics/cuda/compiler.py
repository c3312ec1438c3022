"""CUDA source to machine code, by NVRTC through cuda-bindings, which torch's CUDA builds bring; kept on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from samerun.base.errors import SamerunError
from samerun.base.files import write_file_atomically
from samerun.numerics.cuda.source import FLAGS


def compile_cached(name: str, source: str, architecture: str) -> bytes:
    """Machine code ("sm_90") or PTX ("compute_90") of `source`; from the cache where it was compiled before.

    Raises SamerunError where NVRTC is missing, or refuses.
    """
    nvrtc = _nvrtc()
    version = "{}.{}".format(*_require_success(nvrtc, nvrtc.nvrtcVersion()))
    key = hashlib.sha256("\0".join([version, architecture, *FLAGS, source]).encode()).hexdigest()
    kept = _cache_folder() / f"{name}-{architecture}-{key[:32]}"
    try:
        return kept.read_bytes()
    except OSError:
        pass
    found = _compile(nvrtc, name, source, [f"--gpu-architecture={architecture}", *FLAGS])
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_file_atomically(kept, found)
    except OSError:  # a home that cannot be written: compile again the next time
        pass
    return found


def _cache_folder() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("samerun", appauthor=False)) / "cuda"


def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        raise SamerunError(
            f"portable kernels on CUDA are compiled by NVRTC, which is not there ({str(error).splitlines()[0]}).",
            "pip install cuda-bindings nvidia-cuda-nvrtc, of torch's CUDA version (torch.version.cuda).",
        ) from None
    return nvrtc


def _require_success(nvrtc: Any, answer: tuple[Any, ...]) -> tuple[Any, ...]:
    error, *values = answer
    if int(error) != 0:
        raise SamerunError(f"NVRTC: {nvrtc.nvrtcGetErrorString(error)[1].decode()}.")
    return tuple(values)


def _compile(nvrtc: Any, name: str, source: str, options: Sequence[str]) -> bytes:
    """What NVRTC makes: PTX for a virtual architecture, machine code for a real one."""
    (program,) = _require_success(nvrtc, nvrtc.nvrtcCreateProgram(source.encode(), f"{name}.cu".encode(), 0, [], []))
    try:
        (error,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        if int(error) != 0:
            (size,) = _require_success(nvrtc, nvrtc.nvrtcGetProgramLogSize(program))
            log = b" " * size
            nvrtc.nvrtcGetProgramLog(program, log)
            raise SamerunError(f"NVRTC refuses {name}.cu: {log.decode(errors='replace').strip(chr(0))}")
        what = "PTX" if "=compute_" in options[0] else "CUBIN"
        (size,) = _require_success(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program))
        found = b" " * size
        _require_success(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, found))
        return bytes(found)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
