"""The names of the kernels that inductor generates, and from which lines of the program each comes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

DEFINITION = re.compile(r"^(\w+) = async_compile\.", re.MULTILINE)
MOST_NAMED = 3


@dataclass
class GeneratedCode:
    """Of the graphs that were made of one captured graph: kernels, and the stack traces that each stands for."""

    kernels: list[str] = field(default_factory=list)
    stack_traces: dict[str, list[str]] = field(default_factory=dict)


class KernelCollector:
    """Keeps what inductor says of its kernels, by the captured graph that was being compiled."""

    def __init__(self) -> None:
        self._codes: dict[int, GeneratedCode] = {}
        self._graphs: list[Any] = []

    def install(self) -> None:
        """Have inductor hand over its code, if it is loaded; another torch may not, and then no kernel is named."""
        config: Any = sys.modules.get("torch._inductor.config")
        lowering: Any = getattr(sys.modules.get("torch._inductor.graph"), "GraphLowering", None)
        if config is not None:
            config.force_disable_caches = True  # what was generated before hands over nothing
            if getattr(getattr(config, "trace", None), "provenance_tracking_level", None) == 0:
                config.trace.provenance_tracking_level = 2
        if lowering is not None and getattr(lowering, "save_output_code", 0) is None:
            lowering.save_output_code = self._take

    @contextmanager
    def collecting_for(self, graph: Any) -> Iterator[None]:
        self._graphs.append(graph)
        try:
            yield
        finally:
            self._graphs.pop()

    def _take(self, source: str) -> None:
        if not self._graphs:
            return
        code = self._codes.setdefault(id(self._graphs[-1]), GeneratedCode())
        code.kernels += DEFINITION.findall(source)
        known = getattr(sys.modules.get("torch._inductor.debug"), "_inductor_kernel_stack_trace", {})
        for name, traces in dict(known).items():
            code.stack_traces.setdefault(name.split(":")[0], []).extend(traces)

    def find_kernel(self, graph: Any, stack_trace: str, part_graph: Any) -> str:
        """The kernels of a captured graph that compute what stands at a stack trace; or those of the part alone."""
        code = self._codes.get(id(graph), GeneratedCode())
        wanted = stack_trace.strip()
        found = [name for name, traces in code.stack_traces.items() if any(wanted == each.strip() for each in traces)]
        if not found and len(code.kernels) == 1:
            found = code.kernels
        if not found and id(part_graph) in self._codes:
            found = self._codes[id(part_graph)].kernels
        return ", ".join(dict.fromkeys(found[:MOST_NAMED]))
