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
from samerun.base.wrapping import wrap_like

VARIABLE = "SAMERUN_COST"
"""The file that says what to measure; what was measured goes beside it, one file a process."""

_later = PostImportHooks()


class Meter:
    """What one process has taken so far."""

    def __init__(self, path: str, operators: bool, max_steps: int | None) -> None:
        self.path, self.operators, self.max_steps = path, operators, max_steps
        self.pid = os.getpid()
        self.step_ends: list[tuple[float, float]] = []
        """First and last end of an optimizer step: wall clock and processor seconds."""
        self.steps = 0
        self.stopped = ""
        self.operator_costs: dict[str, list[float]] = {}
        self.torch: Any = None

    def write_cost_file(self) -> None:
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

    def count_step(self, *_: Any) -> None:
        if self.steps < 0:
            return
        if self.torch.cuda.is_initialized():
            self.torch.cuda.synchronize()
        self.steps += 1
        self.step_ends[1:] = [(perf_counter(), process_time())]
        if self.max_steps is not None and self.steps >= self.max_steps:
            self.write_cost_file()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    def on_torch_import(self, torch: ModuleType) -> None:
        self.torch = torch
        if self.operators:
            from samerun.record.watching.cost_mode import CostMode

            mode: Any = CostMode(self.operator_costs)
            mode.__enter__()


def start() -> None:
    """Begin to measure, as the file says that the environment names."""
    try:
        with open(os.environ[VARIABLE], encoding="utf-8") as file:
            request = json.load(file)
    except (OSError, ValueError):
        return  # the folder is gone: a child that has outlived the measurement
    folder = os.path.dirname(os.environ[VARIABLE])
    meter = Meter(os.path.join(folder, f"{os.getpid()}.cost"), request["operators"], request["max_steps"])
    _later.add("torch", meter.on_torch_import)
    _later.add("torch.optim.optimizer", lambda module: module.register_optimizer_step_post_hook(meter.count_step))
    _later.install()
    atexit.register(meter.write_cost_file)
    leave, hook = os._exit, sys.excepthook

    def _exit(status: int) -> Any:
        try:
            meter.write_cost_file()
        finally:
            leave(status)

    def stopped(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        meter.stopped = f"{kind.__name__}: {error}"
        hook(kind, error, trace)

    os._exit = wrap_like(leave, _exit)
    sys.excepthook = stopped
