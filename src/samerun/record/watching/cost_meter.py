"""Measure what this process takes: time, memory, steps, operators. Called by the bootstrap `sitecustomize`."""

from __future__ import annotations

import atexit
import json
import os
import resource
import sys
from time import perf_counter, process_time
from types import ModuleType, TracebackType
from typing import Any

from samerun.base.hooks import PostImportHooks
from samerun.base.wrapping import make_wrapper_of_same_type

VARIABLE = "SAMERUN_COST"
"""The file that says what to measure; what was measured goes beside it, one file a process."""

_later = PostImportHooks()


class CostMeter:
    """What one process has taken so far."""

    def __init__(self, path: str, measures_operators: bool, max_steps: int | None) -> None:
        self.path, self.operators, self.max_steps = path, measures_operators, max_steps
        self.pid = os.getpid()
        self.step_ends: list[tuple[float, float]] = []
        """First and last end of an optimizer step: wall clock and processor seconds."""
        self.steps = 0
        self.stopped = ""
        self.operator_costs: dict[str, list[float]] = {}
        self.torch: Any = None

    def write_cost_file_once(self) -> None:
        """Once, by the process itself: a forked child has the hooks too."""
        if os.getpid() != self.pid or self.steps < 0:
            return
        own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        device = 0
        if self.torch is not None and self.torch.cuda.is_initialized():
            device = max(self.torch.cuda.max_memory_allocated(n) for n in range(self.torch.cuda.device_count()))
        costs = {
            "cpu_seconds": sum(use.ru_utime + use.ru_stime for use in (own, children)),
            "peak_bytes": max(own.ru_maxrss, children.ru_maxrss) * (1 if sys.platform == "darwin" else 1024),
            "device_peak_bytes": device,
            "steps": self.steps,
            "ends": self.step_ends,
            "stopped": self.stopped,
            "operators": self.operator_costs,
        }
        self.steps = -1
        with open(f"{self.path}.part", "w", encoding="utf-8") as file:
            json.dump(costs, file)
        os.replace(f"{self.path}.part", self.path)

    def count_step_or_exit(self, *_: Any) -> None:
        if self.steps < 0:
            return
        if self.torch.cuda.is_initialized():
            self.torch.cuda.synchronize()
        self.steps += 1
        self.step_ends[1:] = [(perf_counter(), process_time())]
        if self.max_steps is not None and self.steps >= self.max_steps:
            self.write_cost_file_once()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    def on_torch_import(self, torch: ModuleType) -> None:
        self.torch = torch
        if self.operators:
            make_cost_mode(self.operator_costs).__enter__()


_RSS_BYTES = 1 if sys.platform == "darwin" else 1024
_usage, _self = resource.getrusage, resource.RUSAGE_SELF


def make_cost_mode(table: dict[str, list[float]]) -> Any:
    """A mode that measures how long each operator takes, and by how much it raises the process's peak of memory."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from samerun.record.watching.torch_internals import KeepsProgramsCompiledMixin

    class CostMode(KeepsProgramsCompiledMixin, TorchDispatchMode):
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

    return CostMode(table)


def start() -> None:
    """Begin to measure, as the file says that the environment names."""
    try:
        with open(os.environ[VARIABLE], encoding="utf-8") as file:
            request = json.load(file)
    except (OSError, ValueError):
        return  # the folder is gone: a child that has outlived the measurement
    folder = os.path.dirname(os.environ[VARIABLE])
    meter = CostMeter(os.path.join(folder, f"{os.getpid()}.cost"), request["operators"], request["max_steps"])
    _later.call_now_or_after_import("torch", meter.on_torch_import)
    _later.call_now_or_after_import(
        "torch.optim.optimizer", lambda module: module.register_optimizer_step_post_hook(meter.count_step_or_exit)
    )
    _later.install()
    atexit.register(meter.write_cost_file_once)
    leave, hook = os._exit, sys.excepthook

    def _exit(status: int) -> Any:
        try:
            meter.write_cost_file_once()
        finally:
            leave(status)

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        meter.stopped = f"{kind.__name__}: {error}"
        hook(kind, error, trace)

    os._exit = make_wrapper_of_same_type(leave, _exit)
    sys.excepthook = excepthook
