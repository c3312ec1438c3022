"""Flags of torch's C module, read and set without starting or importing anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from samerun.control.imported import find_imported, get_imported
from samerun.control.switches.switch import Policy, Switch, Variable


def torch_is_imported() -> bool:
    return find_imported("torch", "_C") is not None


def torch_c_has_functions(*names: str) -> bool:
    """Whether torch is imported completely, and its C module has every function in `names`."""
    torch = find_imported("torch", "_C", "backends", "cuda")
    return torch is not None and all(hasattr(torch._C, name) for name in names)


def get_torch_c_module() -> Any:
    """Torch's C module, which holds the flags. The modules of `torch.backends` only show them."""
    return get_imported("torch")._C


def is_built_for_cuda() -> bool:
    """Whether this torch was built for CUDA, and not for AMD's devices, which it calls CUDA as well."""
    torch = find_imported("torch", "_C", "backends", "cuda", "version")
    return torch is not None and torch.backends.cuda.is_built() and not torch.version.hip


def cuda_is_initialized() -> bool:
    torch = find_imported("torch", "_C", "cuda")
    return torch is not None and bool(torch.cuda.is_initialized())


def make_flag_switch(
    name: str,
    what: str,
    why: str,
    functions: tuple[str, str],
    wanted: Callable[[Policy], bool | None],
    *,
    default: bool = False,
    variables: tuple[Variable, ...] = (),
) -> Switch:
    """A switch for one flag of `torch._C`. functions: the names of its getter and its setter there."""
    getter, setter = functions

    def read() -> bool:
        return bool(getattr(get_torch_c_module(), getter)())

    def write(value: bool) -> None:
        getattr(get_torch_c_module(), setter)(value)

    def available() -> bool:
        return torch_c_has_functions(getter, setter)

    return Switch(
        name, what, why, "any time", read, write, wanted, "torch", available, default=default, variables=variables
    )


def choose_on(policy: Policy) -> bool:
    return True


def choose_off(policy: Policy) -> bool:
    return False


def choose_off_unless_kept(policy: Policy) -> bool | None:
    return None if policy.precision == "keep" else False
