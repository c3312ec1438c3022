"""How long each operator takes, and by how much it raises the process's peak of memory. Imports torch."""

from __future__ import annotations

import resource
import sys
from time import perf_counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from samerun.record.watching.torch_internals import UncompiledMode

_RSS_BYTES = 1 if sys.platform == "darwin" else 1024
_usage, _self = resource.getrusage, resource.RUSAGE_SELF


class CostMode(UncompiledMode, TorchDispatchMode):
    """Adds up (calls, seconds, bytes) in `table`, by operator. On a device each operator is waited for.

    Entered on top of what else is in force, so that an operator's time is that of everything that stands in for it.
    """

    supports_higher_order_operators = True

    def __init__(self, table: dict[str, list[float]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.table = table

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        device = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        if device:
            torch.cuda.synchronize()
            peak = torch.cuda.max_memory_allocated()
        else:
            peak = _usage(_self).ru_maxrss
        begin = perf_counter()
        try:
            return func(*args, **kwargs) if kwargs else func(*args)
        finally:
            if device:
                torch.cuda.synchronize()
            seconds = perf_counter() - begin
            raised = torch.cuda.max_memory_allocated() - peak if device else _usage(_self).ru_maxrss - peak
            entry = self.table.get(str(func))
            if entry is None:
                entry = self.table[str(func)] = [0, 0.0, 0]
            entry[0] += 1
            entry[1] += seconds
            entry[2] += raised * (1 if device else _RSS_BYTES)
