"""Looks into every compiled region of a run: does the backend compute what the region's graph says? Imports torch.

The run is a diagnostic one. The backend given to torch.compile is wrapped: each region is called as always, and before
that on copies of its inputs, compiled and by the plain interpreter. At the first call that is wrong, the node, the
stage and the kernel are looked for and written down. The program itself never sees any of it.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule, Node

from samerun.record.region_finding import CompileStage, RegionFinding, region_finding_path
from samerun.record.watching.compiled_graphs.graph_runs import (
    NotInspectable,
    Run,
    copy_graph_sharing_tensors,
    copy_inputs,
    get_cpu_and_cuda_random_states,
)
from samerun.record.watching.compiled_graphs.kernels import KernelCollector
from samerun.record.watching.compiled_graphs.node_lines import find_line_of_node
from samerun.record.watching.compiled_graphs.node_search import NodeSearch, WrongPart
from samerun.record.watching.compiled_graphs.region_judge import (
    GraphOnInputs,
    OutOfTime,
    RegionJudge,
    WrongValue,
    widened_or_none,
)
from samerun.record.watching.compiled_graphs.stages import StageSearch
from samerun.record.watching.compiled_graphs.subgraphs import GraphParts
from samerun.record.watching.recorder import Recorder
from samerun.record.watching.stack_frames import find_user_line

SECONDS = 300.0
"""So long, from the first region on, the run looks into regions; what was found until then is the answer."""


UNDECLARED_WRITE = "the operator writes into an argument, and its schema does not say so (mutates_args)"


class RegionInspector:
    """What a process found out about its compiled regions."""

    def __init__(self, recorder: Recorder, looks_closer: bool) -> None:
        self.recorder, self.looks_closer = recorder, looks_closer
        self.judge: RegionJudge | None = None
        self.kernels = KernelCollector()
        self.is_done = False

    def wrap_backend(self, backend: Any, mode: Any, options: Any, dynamic: Any) -> InspectedBackend:
        if isinstance(backend, InspectedBackend):
            return backend
        internals: Any = torch
        if backend == "inductor":
            return InspectedBackend(self, internals._TorchCompileInductorWrapper(mode, options, dynamic), backend)
        plain = internals._TorchCompileWrapper(backend, mode, options, dynamic)
        return InspectedBackend(self, plain, backend if isinstance(backend, str) else "")

    def inspect(self, region: Region, arguments: tuple[Any, ...]) -> None:
        """Before a region is called. Never raises."""
        state = self.recorder.thread
        if self.is_done or state.inside_samerun or state.number != 0 or self.recorder.stopped:
            return
        if self.judge is None:
            self.judge = RegionJudge(time.monotonic() + SECONDS, self.looks_closer)
        state.inside_samerun += 1
        try:
            with self.kernels.collecting_for(region.graph):
                inputs = copy_inputs(arguments)
                subject = GraphOnInputs(region.graph, inputs, widened_or_none(inputs), get_cpu_and_cuda_random_states())
                differences = self.judge.judge_program(subject, region.backend, region.compiled)
            if differences:
                self.is_done = True
                self._write_finding_file_of_process(self._locate_wrong_part_and_stage(region, subject, differences))
        except OutOfTime:
            self.is_done = True
        except Exception:
            pass  # of this region nothing can be said; the backends that stop after a stage still tell the stage
        finally:
            state.inside_samerun -= 1

    def _write_finding_file_of_process(self, finding: RegionFinding) -> None:
        role = self.recorder.process_role_path()
        self.recorder.open_writer()
        finding.write(region_finding_path(self.recorder.config.folder, role))

    def _locate_wrong_part_and_stage(
        self, region: Region, subject: GraphOnInputs, differences: list[WrongValue]
    ) -> RegionFinding:
        assert self.judge is not None
        count = sum(node.op.startswith("call") for node in region.graph.graph.nodes)
        told = RegionFinding(file=region.file, line=region.line, value=describe(differences[0]), node_count=count)
        self._write_finding_file_of_process(told)  # if what follows does not end, this is what there is
        part: WrongPart | None = None
        writer: Node | None = None
        try:
            parts = GraphParts(subject)
            for evidence in (differences[0].evidence, None):
                part = part or NodeSearch(parts, self.judge, region.backend, evidence).find()
            writer = parts.run_and_find_undeclared_write(part.nodes) if part is not None else None
        except (OutOfTime, NotInspectable):
            pass
        if part is None:
            note = "it is wrong only as the program compiles it, not when its graph is compiled once more"
            return replace(told, note=note)
        evidence = part.differences[0].evidence
        with self.kernels.collecting_for(part.subject.graph):
            search = StageSearch(self.judge, part.subject, region.backend, evidence)
            stage, subsystem = search.find(region.backend_name)
        finding = self._make_finding(region, told, part, stage, subsystem, writer or part.nodes[-1])
        return finding if writer is None else replace(finding, note=UNDECLARED_WRITE)

    def _make_finding(
        self,
        region: Region,
        told: RegionFinding,
        part: WrongPart,
        stage: CompileStage | None,
        subsystem: str,
        node: Node,
    ) -> RegionFinding:
        file, line = find_line_of_node(node)
        kernel = ""
        if stage == "lowering":
            kernel = self.kernels.find_kernel(region.graph, node.meta.get("stack_trace", ""), part.subject.graph)
        return RegionFinding(
            node=node.name, operator=name_operator(node), file=file or told.file, line=line or told.line,
            stage=stage, subsystem=subsystem, kernel=kernel, others=tuple(n.name for n in part.nodes if n is not node),
            value=describe(part.differences[0]), alone=len(part.nodes) == 1, node_count=told.node_count,
            note="" if part.is_complete else "time was up before the part could be made smaller",
        )  # fmt: skip


class Region:
    """A graph that Dynamo captured, and what the program's backend made of it."""

    def __init__(self, inspector: RegionInspector, backend: Run, backend_name: str, graph: GraphModule) -> None:
        self.inspector, self.backend, self.backend_name, self.graph = inspector, backend, backend_name, graph
        self.compiled: Run = graph
        self.file, self.line, _ = find_user_line()

    def call(self, *arguments: Any) -> Any:
        self.inspector.inspect(self, arguments)
        return self.compiled(*arguments)


class InspectedBackend:
    """A backend of torch.compile that does what another one does, and has its regions looked into."""

    def __init__(self, inspector: RegionInspector, backend: Any, name: str) -> None:
        self.inspector, self.backend, self.name = inspector, backend, name
        self.compiler_name = getattr(backend, "compiler_name", name)

    def __call__(self, graph_module: GraphModule, example_inputs: list[Any]) -> Any:
        region = Region(self.inspector, self._compile_again, self.name, copy_graph_sharing_tensors(graph_module))
        if self.name == "inductor":
            importlib.import_module("torch._inductor.graph")  # so that it hands over the first kernel too
        self.inspector.kernels.install()
        self.saved = copy_inductor_settings()
        with self.inspector.kernels.collecting_for(region.graph):
            region.compiled = self.backend(graph_module, example_inputs)
        return region.call

    def _compile_again(self, graph_module: GraphModule, example_inputs: list[Any]) -> Any:
        with inductor_settings(self.saved):
            return self.backend(graph_module, example_inputs)

    def get_compiler_config(self) -> Any:
        return self.backend.get_compiler_config()

    def reset(self) -> None:
        reset = getattr(self.backend, "reset", None)
        if reset is not None:
            reset()


def copy_inductor_settings() -> dict[str, Any]:
    """Inductor's settings as the program has them now; a `with` of its own may be over when a part is compiled."""
    config: Any = sys.modules.get("torch._inductor.config")
    try:
        return dict(config.get_config_copy()) if config is not None else {}
    except Exception:
        return {}


@contextmanager
def inductor_settings(settings: dict[str, Any]) -> Iterator[None]:
    config: Any = sys.modules.get("torch._inductor.config")
    with ExitStack() as stack:
        if config is not None and settings:
            now = config.get_config_copy()
            changed = {name: value for name, value in settings.items() if name in now and now[name] is not value
                       and now[name] != value}  # fmt: skip
            if changed:
                stack.enter_context(config.patch(changed))
        yield


# --- in words ----------------------------------------------------------------------------------------------------
def name_operator(node: Node) -> str:
    if node.op == "call_method":
        return f"Tensor.{node.target}"
    if node.op != "call_function" or isinstance(node.target, str):
        return str(node.target)
    try:
        from torch.fx.node import _get_qualified_name

        return _get_qualified_name(node.target).replace("_operator.", "operator.")
    except Exception:
        return str(getattr(node.target, "__name__", node.target))


def describe(difference: WrongValue) -> str:
    kind, at = difference.key
    if kind == "form":
        return "which results share memory, or need gradients, differs"
    names = {"output": "result", "gradient": "the gradient for input", "input": "what is written into input"}
    what = f"{names[kind]} {at}"
    size = f"by {difference.share:.2g} of its size" if difference.share < float("inf") else "in kind"
    where = "in float64 too" if difference.evidence == "float64" else "in the program's precision"
    return f"{what} differs {size}, {where}"
