"""At which stage of compilation a graph goes wrong, and in which decomposition, pass or lowering. Imports torch.

`torch._inductor.compiler_bisector` asks before every decomposition, pass and lowering whether it is switched off: its
question is answered here. A torch that does not ask so gives a stage and no more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from samerun.record.region_finding import STAGE_BACKENDS, CompileStage
from samerun.record.watching.compiled_graphs.graph_runs import Run
from samerun.record.watching.compiled_graphs.region_judge import Evidence, GraphOnInputs, OutOfTime, RegionJudge

UNLIMITED = 1 << 60
WHOLE_COMPILER = "pre_grad_graph"
"""Without this, inductor compiles nothing at all."""
NODE_TARGET = re.compile(r"target=([\w.]+)")


class SubsystemLimit:
    """Answers the compiler's questions: of one subsystem, only the first `limit` applications take place."""

    def __init__(self, subsystem: str, limit: int) -> None:
        self.subsystem, self.limit = subsystem, limit
        self.counts: dict[str, int] = {}
        self.last = ""
        """The last application that took place, in the compiler's words."""

    def is_disabled(self, backend: str, subsystem: str, describe: Callable[[], str] | None = None) -> bool:
        count = self.counts[subsystem] = self.counts.get(subsystem, 0) + 1
        if subsystem != self.subsystem:
            return False
        if count == self.limit and describe is not None:
            self.last = describe()
        return count > self.limit


@contextmanager
def limited(limit: SubsystemLimit) -> Iterator[None]:
    """While this lasts, the compiler asks `limit`. Raises AttributeError or ImportError where torch cannot be asked."""
    from torch._inductor.compiler_bisector import CompilerBisector

    bisector: Any = CompilerBisector
    kept = vars(bisector)["disable_subsystem"], bisector.bisection_enabled
    bisector.disable_subsystem, bisector.bisection_enabled = staticmethod(limit.is_disabled), True
    try:
        yield
    finally:
        bisector.disable_subsystem, bisector.bisection_enabled = kept


class StageSearch:
    """Names the stage for a part of a graph that a backend computes wrongly."""

    def __init__(self, judge: RegionJudge, subject: GraphOnInputs, backend: Run, evidence: Evidence | None) -> None:
        self.judge, self.subject, self.backend, self.evidence = judge, subject, backend, evidence

    def find(self, backend_name: str) -> tuple[CompileStage | None, str]:
        """The first stage whose backend makes the difference, and what inside of it; (None, "") if time is up."""
        from torch._dynamo.backends.registry import lookup_backend

        try:
            for name, stage in STAGE_BACKENDS[1:]:
                backend = self.backend if name == backend_name else lookup_backend(name)
                if name == backend_name or self._is_wrong(backend):
                    return stage, self._find_wrong_subsystem_application(backend) if stage == "decomposition" else ""
            if backend_name != "inductor":
                return "backend", ""
            return "lowering", self._find_wrong_subsystem_application(self.backend)
        except OutOfTime:
            return None, ""

    def _is_wrong(self, backend: Run) -> bool:
        return bool(self.judge.judge_backend(self.subject, backend, self.evidence))

    def _find_wrong_subsystem_application(self, backend: Run) -> str:
        """The first application of a subsystem that makes the difference; "" if none does, or torch cannot be asked."""

        def is_wrong_with(subsystem: str, count: int) -> tuple[bool, SubsystemLimit]:
            limit = SubsystemLimit(subsystem, count)
            with limited(limit):
                return self._is_wrong(backend), limit

        try:
            _, seen = is_wrong_with("", UNLIMITED)
            for subsystem in (each for each in seen.counts if each != WHOLE_COMPILER):
                if is_wrong_with(subsystem, 0)[0] or not is_wrong_with(subsystem, UNLIMITED)[0]:
                    continue
                right, wrong, last = 0, seen.counts[subsystem], ""
                while wrong - right > 1:
                    middle = (right + wrong) // 2
                    if is_wrong_with(subsystem, middle)[0]:
                        wrong = middle
                    else:
                        right = middle
                last = is_wrong_with(subsystem, wrong)[1].last
                return describe_application(subsystem, last)
        except OutOfTime:
            raise
        except Exception:
            return ""
        return ""


def describe_application(subsystem: str, text: str) -> str:
    """In words: the compiler describes an operator by its repr, a node by its line in the graph, a pass by its name."""
    operator = re.search(r"op='([\w.:]+)', overload='(\w+)'", text)
    node = NODE_TARGET.search(text)
    name = f"{operator[1]}.{operator[2]}" if operator else node[1] if node else text
    kind = subsystem.removesuffix("s").replace("_", " ").replace("passe", "pass")
    return f"{kind} {name}".strip()
