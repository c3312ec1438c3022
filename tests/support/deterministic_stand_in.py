"""Deterministic operators on the CPU, whatever device their kernels are for: how they are tried without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from samerun.control.deterministic_kernels import install
from samerun.control.deterministic_kernels.declare import DeterministicOperator


@contextmanager
def stand_in(operator: DeterministicOperator, around: Any = None) -> Iterator[dict[str, int]]:
    """Deterministic mode with the kernels of one operator on the CPU, whatever device they are for.

    Gives how often each was called, by its first overload. `around(call)` stands in for the call.
    """
    calls: dict[str, int] = {}
    library = torch.library.Library("aten", "IMPL")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        for kernel in operator.kernels:
            name = kernel.overloads[0]
            if name in calls:
                continue  # on the CPU it stands in for less than on CUDA, which comes first
            calls[name] = 0

            def compute(*args: Any, _name: str = name, _own: Any = kernel.compute, **kwargs: Any) -> Any:
                calls[_name] += 1
                return around(lambda: _own(*args, **kwargs)) if around else _own(*args, **kwargs)

            key = "QuantizedCPU" if kernel.keys == ("QuantizedCPU",) else "CPU"
            for overload in kernel.overloads:
                if torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{overload}", key):
                    install.override_kernel_when_deterministic(library, overload, key, replace(kernel, compute=compute))
        yield calls
    finally:
        library._destroy()
        torch.use_deterministic_algorithms(before)
