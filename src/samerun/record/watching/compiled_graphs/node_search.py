"""Which node of a region is computed wrongly: halving over prefixes of its graph, then over what comes before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch.fx import Node

from samerun.record.watching.compiled_graphs.graph_runs import Run
from samerun.record.watching.compiled_graphs.region_judge import (
    Evidence,
    GraphOnInputs,
    OutOfTime,
    RegionJudge,
    WrongValue,
)
from samerun.record.watching.compiled_graphs.subgraphs import GraphParts

MOST_TRIED_ALONE = 16
"""Nodes of a part that are left out one by one; more are left as they are."""


@dataclass(frozen=True)
class WrongPart:
    """The smallest part of a graph that was seen to be wrong. Its last node decides: without it, nothing is wrong."""

    nodes: tuple[Node, ...]
    subject: GraphOnInputs
    differences: tuple[WrongValue, ...]
    is_complete: bool
    """False if time was up before the part could be made smaller."""


class NodeSearch:
    """Looks for the smallest part of a graph that a backend computes wrongly."""

    def __init__(self, parts: GraphParts, judge: RegionJudge, backend: Run, evidence: Evidence | None) -> None:
        self.parts, self.judge, self.backend, self.evidence = parts, judge, backend, evidence
        self.best: WrongPart | None = None

    def find(self) -> WrongPart | None:
        """None if not even the whole graph is wrong when it is compiled once more."""
        nodes = [n for n in self.parts.nodes if n not in self.parts.context]
        try:
            if nodes and self._judge_part_and_keep_if_wrong(nodes):
                self._find_smallest(nodes)
        except OutOfTime:
            return self.best and WrongPart(self.best.nodes, self.best.subject, self.best.differences, False)
        return self.best

    def _judge_part_and_keep_if_wrong(self, nodes: Iterable[Node], ends: Sequence[Node] | None = None) -> bool:
        chosen = tuple(nodes)
        try:
            subject = self.parts.make_part(chosen, ends)
        except OutOfTime:
            raise
        except Exception:  # what cannot be cut out shows nothing
            return False
        differences = self.judge.judge_backend(subject, self.backend, self.evidence)
        if differences:
            self.best = WrongPart(chosen, subject, tuple(differences), True)
        return bool(differences)

    def _find_smallest(self, nodes: list[Node]) -> None:
        right, wrong = 0, len(nodes)
        while wrong - right > 1:
            middle = (right + wrong) // 2
            if self._judge_part_and_keep_if_wrong(nodes[:middle]):
                wrong = middle
            else:
                right = middle
        last = nodes[wrong - 1]
        part, ends = nodes[:wrong], None
        if wrong == 1 or self._judge_part_and_keep_if_wrong([last]):
            return
        ancestors = self.parts.find_ancestors(last)
        related = [n for n in part if n in ancestors]
        if len(related) < len(part) and self._judge_part_and_keep_if_wrong(related, [last]):
            part, ends = related, [last]
        self._drop_from_front(part, ends)

    def _drop_from_front(self, part: list[Node], ends: list[Node] | None) -> None:
        wrong, right = 0, len(part) - 1
        while right - wrong > 1:
            middle = (right + wrong) // 2
            if self._judge_part_and_keep_if_wrong(part[middle:], ends):
                wrong = middle
            else:
                right = middle
        part = part[wrong:]
        if len(part) > MOST_TRIED_ALONE:
            return
        for node in part[-2:0:-1]:
            rest = [n for n in part if n is not node]
            if self._judge_part_and_keep_if_wrong(rest, ends):
                part = rest
