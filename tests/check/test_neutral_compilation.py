"""The pieces that look into compiled regions: parts of graphs, copies of inputs, the compiler's own words."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx import GraphModule, symbolic_trace

from samerun.check.neutral.compilation_stages import region_finding_to_culprit_and_region
from samerun.check.neutral.value_correspondence import Culprit
from samerun.record.region_finding import RegionFinding, read_rank0_or_main_region_finding, region_finding_path
from samerun.record.watching.compiled_graphs.graph_runs import (
    NotInspectable,
    copy_graph_in_float64,
    copy_graph_sharing_tensors,
    copy_inputs,
    get_cpu_and_cuda_random_states,
)
from samerun.record.watching.compiled_graphs.node_lines import interpret_with_lines
from samerun.record.watching.compiled_graphs.node_search import NodeSearch, WrongPart
from samerun.record.watching.compiled_graphs.region_judge import GraphOnInputs, RegionJudge, widened_or_none
from samerun.record.watching.compiled_graphs.stages import SubsystemLimit, describe_application
from samerun.record.watching.compiled_graphs.subgraphs import GraphParts
from samerun.record.watching.stack_frames import find_user_line

Change = Callable[[GraphModule], None]


def search(function: Callable[..., Any], change: Change, *inputs: Any) -> WrongPart | None:
    """Search for what a backend that changes the graph makes wrong."""
    graph = symbolic_trace(function)

    def backend(made: GraphModule, examples: list[Any]) -> Any:
        change(made)
        made.recompile()
        return made.forward

    copies = copy_inputs(inputs)
    subject = GraphOnInputs(graph, copies, widened_or_none(copies), get_cpu_and_cuda_random_states())
    judge = RegionJudge(time.monotonic() + 60, False)
    compiled = backend(copy_graph_sharing_tensors(graph), [])
    differences = judge.judge_program(subject, backend, compiled)
    if not differences:
        return None
    return NodeSearch(GraphParts(subject), judge, backend, differences[0].evidence).find()


def replace_target(old: Any, new: Any) -> Change:
    def change(graph: GraphModule) -> None:
        for node in graph.graph.nodes:
            if node.target is old:
                node.target = new

    return change


def network(x: Any) -> Any:
    parts = torch.relu(x).split(4)
    y = parts[0] + parts[1].sin()
    y = y.clone()
    y.mul_(2.0)
    z = torch.cosh(y * 0.1)
    return z.sum(0), y


def test_the_node_is_found_among_tuples_and_writes_in_place() -> None:
    found = search(network, replace_target(torch.cosh, torch.exp), torch.randn(8, 3))
    assert found is not None and [node.target for node in found.nodes] == [torch.cosh]


def test_nodes_that_are_wrong_together_are_named_together() -> None:
    def fuse(graph: GraphModule) -> None:
        for node in graph.graph.nodes:
            if node.target is torch.exp and node.args[0].target is torch.sin:
                node.target = torch.expm1

    found = search(lambda x: torch.exp(torch.sin(torch.tanh(x))) + 1, fuse, torch.randn(5))
    assert found is not None and [node.target for node in found.nodes] == [torch.sin, torch.exp]


def test_a_wrong_gradient_is_found() -> None:
    stopped = replace_target(torch.tanh, lambda x: x.detach().tanh() + 0 * x)
    found = search(lambda x: torch.cos(torch.tanh(x) * 2), stopped, torch.randn(5, requires_grad=True))
    assert found is not None and [node.target for node in found.nodes] == [torch.tanh]
    assert found.differences[0].key[0] == "gradient"


def test_an_operator_that_writes_unasked_is_found() -> None:
    @torch.library.custom_op("samerun_tests::grow", mutates_args=())
    def grow(x: torch.Tensor) -> torch.Tensor:
        return x.add_(1).clone()

    @torch.library.custom_op("samerun_tests::keep", mutates_args=())
    def keep(x: torch.Tensor) -> torch.Tensor:
        return x + float("nan")

    graph = symbolic_trace(lambda x: torch.ops.samerun_tests.keep(torch.ops.samerun_tests.keep(x) + x))
    subject = GraphOnInputs(graph, copy_inputs([torch.ones(3)]), None, get_cpu_and_cuda_random_states())
    parts = GraphParts(subject)
    assert parts.run_and_find_undeclared_write(parts.nodes) is None  # NaN stays NaN
    graph = symbolic_trace(lambda x: torch.ops.samerun_tests.grow(x.sin()) + torch.ops.samerun_tests.keep(x))
    parts = GraphParts(GraphOnInputs(graph, copy_inputs([torch.ones(3)]), None, get_cpu_and_cuda_random_states()))
    found = parts.run_and_find_undeclared_write(parts.nodes)
    assert found is not None and found.name == "grow"


def test_rounding_is_not_wrong() -> None:
    def reassociate(graph: GraphModule) -> None:
        replace_target(torch.softmax, lambda x, dim: x.exp() / x.exp().sum(dim, keepdim=True))(graph)

    assert search(lambda x: torch.softmax(x, 1).sum(0), reassociate, torch.randn(50, 40)) is None


def test_copies_share_memory_as_their_originals_do() -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    one, other = copy_inputs([whole, whole[1:, ::2]])
    one.value[1] = -1
    assert other.value.tolist() == [[-1, -1], [8, 10]] and whole[1, 0] == 4
    wide = copy_inputs([whole[1:, ::2]], in_float64=True)[0].value
    assert (wide.dtype, wide.stride()) == (torch.float64, (4, 2))
    with pytest.raises(NotInspectable):
        copy_inputs([torch.nn.Parameter(torch.ones(1)).to("meta")])


def test_a_node_runs_at_its_line() -> None:
    lines: list[tuple[str, int]] = []
    graph = symbolic_trace(lambda x: torch.relu(x) + 1)
    for node in graph.graph.nodes:
        node.meta["stack_trace"] = f'  File "{__file__}", line 7, in f\n  File "{torch.__file__}", line 3, in g\n'
        if node.target is torch.relu:
            # Not a function of this file, whose own line would be the nearest.
            node.target = eval("lambda x: lines.append(find()[:2]) or x", {"lines": lines, "find": find_user_line})
    assert interpret_with_lines(graph, [])(torch.ones(2)).tolist() == [2, 2]
    assert lines == [(__file__, 7)]


def test_in_float64_casts_and_constants_are_wide() -> None:
    def function(x: Any) -> Any:
        return x.float() + torch.ones(3, dtype=torch.float32).to(torch.bfloat16)

    assert copy_graph_in_float64(symbolic_trace(function))(torch.ones(3, dtype=torch.float64)).dtype == torch.float64


def test_the_compilers_own_words() -> None:
    limit = SubsystemLimit("lowerings", 2)
    asked = [limit.is_disabled("inductor", "lowerings", lambda at=at: f"node {at}") for at in range(3)]
    assert asked == [False, False, True] and limit.last == "node 1"
    assert not limit.is_disabled("inductor", "post_grad_passes")
    text = describe_application("decomposition", "<OpOverload(op='aten.silu', overload='default')>")
    assert text == "decomposition aten.silu.default"
    assert describe_application("post_grad_passes", "fuse_pass") == "post grad pass fuse_pass"


def test_a_finding_is_read_again_and_told(tmp_path: Path) -> None:
    finding = RegionFinding("y", "torch.relu", "a.py", 3, "lowering", "lowering aten.relu", "cpp_fused_0", ("x",), "v")
    finding.write(region_finding_path(str(tmp_path), "main"))
    assert read_rank0_or_main_region_finding(tmp_path) == finding
    told, region = region_finding_to_culprit_and_region(Culprit("", "", 0, ""), finding)
    assert (told.operator, told.line, region.stage, region.kernel) == ("torch.relu", 3, "lowering", "cpp_fused_0")
    assert "only together with x" in told.why
    (tmp_path / "main.region.json").write_text("[1]", encoding="utf-8")
    assert read_rank0_or_main_region_finding(tmp_path) is None
