"""Whether something has started, without starting it; and torch's C module, if torch is there."""

from __future__ import annotations

from typing import Any

from samerun.control.seeds.loaded import loaded, present


def torch_started() -> bool:
    return loaded("torch", "_C") is not None


def torch_has(*names: str) -> bool:
    """Whether torch is loaded whole, and its C module has every function in `names`."""
    torch = loaded("torch", "_C", "backends", "cuda")
    return torch is not None and all(hasattr(torch._C, name) for name in names)


def torch_c() -> Any:
    """Torch's C module, which holds the flags. The modules of `torch.backends` only show it."""
    return present("torch")._C


def cuda_built() -> bool:
    """Whether this torch was built for CUDA, and not for AMD's devices, which it calls CUDA as well."""
    torch = loaded("torch", "_C", "backends", "cuda", "version")
    return torch is not None and torch.backends.cuda.is_built() and not torch.version.hip


def cuda_started() -> bool:
    torch = loaded("torch", "_C", "cuda")
    return torch is not None and bool(torch.cuda.is_initialized())
