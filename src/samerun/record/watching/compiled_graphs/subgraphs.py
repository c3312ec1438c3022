"""Parts of a graph as graphs of their own, with the inputs that they have in the whole. Imports torch."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node

from samerun.record.watching.compiled_graphs.graph_runs import (
    NotInspectable,
    copy_graph_in_float64,
    copy_inputs,
    run_on_copies,
)
from samerun.record.watching.compiled_graphs.region_judge import GraphOnInputs

CONTEXT_TARGETS = ("_enter_autocast", "_exit_autocast", "_set_grad_enabled", "set_grad_enabled", "inference_mode",
                   "_enter_inference_mode", "_exit_inference_mode")  # fmt: skip
"""Nodes that change how the others compute: every part has them all."""
CALLS = ("call_function", "call_method", "call_module", "get_attr")


class GraphParts:
    """A region's graph, from which parts are taken."""

    def __init__(self, subject: GraphOnInputs) -> None:
        self.subject = subject
        self.graph = subject.graph
        self.nodes: list[Node] = [n for n in self.graph.graph.nodes if n.op in CALLS]
        self.position = {node: at for at, node in enumerate(self.graph.graph.nodes)}
        self.placeholders: list[Node] = [n for n in self.graph.graph.nodes if n.op == "placeholder"]
        self.context = [n for n in self.nodes if getattr(n.target, "__name__", "") in CONTEXT_TARGETS]
        self.kinds = self._run_and_classify_node_values()

    def _run_and_classify_node_values(self) -> dict[Node, Any]:
        """Of every node: "tensor", "number", a tuple of such kinds, or "other"."""
        kinds: dict[Node, Any] = {}

        class Kinds(Interpreter):
            def run_node(self, n: Node) -> Any:
                value = super().run_node(n)
                kinds[n] = kind_of(value)
                return value

        run_on_copies(Kinds(self.graph).run, self.subject.inputs, self.subject.random_states, False, False)
        return kinds

    # --- parts ---------------------------------------------------------------------------------------
    def make_part(self, nodes: Iterable[Node], ends: Iterable[Node] | None = None) -> GraphOnInputs:
        """These nodes as a graph. ends: what it gives back; None for what the rest of the graph uses, and the last."""
        chosen = self._add_sources_that_cannot_be_inputs({*nodes, *self.context})
        ordered = [n for n in self.nodes if n in chosen]
        last = next((n for n in reversed(ordered) if n not in self.context), ordered[-1])
        if ends is None:
            ends = [n for n in ordered if n is last or any(user not in chosen for user in n.users)]
        externals = sorted(
            {source for n in ordered for source in n.all_input_nodes if source not in chosen},
            key=self.position.__getitem__,
        )
        graph, env = Graph(), {}
        for external in externals:
            env[external] = self._add_placeholder(graph, external.name, self.kinds[external])
        for node in ordered:
            made = env[node] = graph.node_copy(node, lambda source: env[source])
            made.meta = {name: node.meta[name] for name in ("stack_trace", "nn_module_stack", "source_fn_stack")
                         if name in node.meta}  # fmt: skip
        outputs: list[Any] = []
        for end in ends:
            outputs += self._add_getitem_nodes(graph, env[end], self.kinds[end])
        graph.output(tuple(outputs))
        first = next((n for n in ordered if n not in self.context), ordered[0])
        inputs = self._run_graph_and_copy_values_before(externals, first, in_float64=False)
        try:
            wide_inputs = self._run_graph_and_copy_values_before(externals, first, in_float64=True)
        except (NotInspectable, RuntimeError, TypeError):
            wide_inputs = None
        return GraphOnInputs(GraphModule(self.graph, graph), inputs, wide_inputs, self.subject.random_states)

    def _add_sources_that_cannot_be_inputs(self, chosen: set[Node]) -> set[Node]:
        """With all nodes from which they take what can be no input of a graph."""
        waiting = list(chosen)
        while waiting:
            for source in waiting.pop().all_input_nodes:
                if source not in chosen and source.op in CALLS and not can_be_input(self.kinds[source]):
                    chosen.add(source)
                    waiting.append(source)
        return chosen

    def _add_placeholder(self, graph: Graph, name: str, kind: Any) -> Any:
        if type(kind) is tuple:
            return tuple(self._add_placeholder(graph, f"{name}_{at}", each) for at, each in enumerate(kind))
        return graph.placeholder(name)

    def _add_getitem_nodes(self, graph: Graph, node: Any, kind: Any) -> list[Any]:
        if kind == "tensor":
            return [node]
        if type(kind) is not tuple:
            return []
        return [
            end for at, each in enumerate(kind) if each == "tensor" or type(each) is tuple
            for end in self._add_getitem_nodes(graph, graph.call_function(operator.getitem, (node, at)), each)
        ]  # fmt: skip

    def find_ancestors(self, node: Node) -> set[Node]:
        """The calls from which a node is computed, and it."""
        found, waiting = {node}, [node]
        while waiting:
            for source in waiting.pop().all_input_nodes:
                if source.op in CALLS and source not in found:
                    found.add(source)
                    waiting.append(source)
        return found

    def run_and_find_undeclared_write(self, nodes: Sequence[Node]) -> Node | None:
        """The first of these nodes whose operator writes into an argument, and whose schema does not say so.

        The compiler believes the schema, and lets what is written show up anywhere.
        """
        wanted = {node for node in nodes if is_custom_operator_declaring_no_write(node.target)}
        found: list[Node] = []

        class Writes(Interpreter):
            def run_node(self, n: Node) -> Any:
                if n not in wanted:
                    return super().run_node(n)
                args = [self.env[source] for source in n.all_input_nodes]
                before = copy_inputs(args)
                value = super().run_node(n)
                pairs = [
                    (old.value, new) for old, new in zip(before, args, strict=True) if isinstance(new, torch.Tensor)
                ]
                if not all(torch.allclose(old, new, rtol=0, atol=0, equal_nan=True) for old, new in pairs):
                    found.append(n)
                return value

        if wanted:
            inputs = self.subject.inputs
            run_on_copies(Writes(self.graph).run, inputs, self.subject.random_states, False, False)
        return next(iter(found), None)

    # --- values --------------------------------------------------------------------------------------
    def _run_graph_and_copy_values_before(self, externals: Sequence[Node], first: Node, in_float64: bool) -> list[Any]:
        """Copies of what these nodes give: as it is right before `first` runs, or else when it is computed."""
        graph = self.graph
        if in_float64:
            graph = copy_graph_in_float64(self.graph)
        names = {node.name for node in externals}
        values: dict[str, Any] = {}
        early = [n.name for n in externals if self.position[n] < self.position[first]]

        class Values(Interpreter):
            def run_node(self, n: Node) -> Any:
                if n.name == first.name and early:
                    env = {each.name: value for each, value in self.env.items()}
                    values.update(zip(early, copy_inputs([env[name] for name in early]), strict=True))
                value = super().run_node(n)
                if n.name in names and n.name not in early:
                    values[n.name] = copy_inputs([value])[0]
                return value

        inputs = self.subject.wide_inputs if in_float64 else self.subject.inputs
        if inputs is None:
            raise NotInspectable("no float64")
        interpreter = Values(graph, garbage_collect_values=False)
        run_on_copies(interpreter.run, inputs, self.subject.random_states, in_float64, False)
        return [values[node.name] for node in externals]


def is_custom_operator_declaring_no_write(target: Any) -> bool:
    """Whether a target is an operator that the program, or a library, has registered, and that writes into nothing."""
    overload = getattr(target, "default", target)
    schema = getattr(overload, "_schema", None)
    return schema is not None and not schema.is_mutable and not schema.name.startswith(("aten::", "prims::"))


def kind_of(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return "tensor"
    if isinstance(value, (bool, int, float)):
        return "number"
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        return tuple(kind_of(item) for item in value)
    return "other"


def can_be_input(kind: Any) -> bool:
    return all(can_be_input(each) for each in kind) if type(kind) is tuple else kind in ("tensor", "number")
