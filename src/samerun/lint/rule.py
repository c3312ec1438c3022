"""The record of a rule, and what its detector yields."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from samerun.base.source_edits import Edit
from samerun.lint.source_index import SourceIndex


@dataclass(frozen=True)
class Hit:
    """One place that a rule reports. `message`: what stands there, in a sentence; `edits`: what mends it, or none.

    `cause`: where it leads to another kind of cause than the rule.
    """

    node: ast.expr | ast.stmt
    message: str
    edits: tuple[Edit, ...] = ()
    cause: str = ""


@dataclass(frozen=True)
class Rule:
    """One hazard that can be seen in source.

    `cause`: the kind of cause of `samerun check` that it leads to. `before` is reported, by this rule and no other;
    `after` is not. `fix`: one line in the imperative. `risk`: when a report may be wrong. `default`: whether it is
    on unless it is asked for: its precision on public code is at least 0.9.
    """

    code: str
    name: str
    cause: str
    what: str
    why: str
    before: str
    after: str
    fix: str
    risk: str
    find: Callable[[SourceIndex], Iterable[Hit]]
    default: bool = True


def is_in_test(index: SourceIndex, node: ast.AST) -> bool:
    """Whether a node stands in a test, which may draw as it likes: nothing else depends on it."""
    if any(isinstance(one, ast.FunctionDef) and one.name.startswith("test_") for one in index.tree.body) or any(
        "TestCase" in base for one in index.classes for base in index.base_names(one)
    ):
        return True
    for one in index.ancestors(node):
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) and (
            one.name.startswith("test") or any("fixture" in ast.unparse(by) for by in one.decorator_list)
        ):
            return True
        if isinstance(one, ast.ClassDef) and (
            one.name.startswith("Test") or any("TestCase" in name for name in index.base_names(one))
        ):
            return True
    return False
