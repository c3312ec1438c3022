"""The record of a rule, and what its detector yields."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from samerun.base.source_edits import Edit, last_identifier
from samerun.lint.call_arguments import argument_for, default_of, has_star
from samerun.lint.seeding import has_main_guard_or_top_level_block
from samerun.lint.source_index import FUNCTIONS, Function, SourceIndex


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
    on unless it is asked for: its precision on public code is at least 0.9. `needs_seed`: what it reports counts
    only where something seeds, so that a seed which is put in can bring it up.
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
    needs_seed: bool = False


EFFECT = re.compile(
    r"train|fit|main|run|backward|step|learn|optimi|save|dump|write|writerows?|export|to_csv|load|from_pretrained"
    r"|parse|argv|Options|eval|predict|generat|process|convert|exit", re.IGNORECASE,
)  # fmt: skip
"""Names of functions whose results somebody keeps, or that make a main block a program with options."""


def is_in_test_demo_or_unused_code(index: SourceIndex, node: ast.AST) -> bool:
    """Whether a node may draw as it likes, because nothing else depends on it."""
    return (
        _is_in_test_code(index, node)
        or _is_in_self_check(index, node)
        or _is_in_unreferenced_definition(index, node)
        or _is_in_branch_no_call_takes(index, node)
        or _is_unreachable(index, node)
    )


EXITS = {"exit", "quit", "sys.exit", "os._exit"}


def _is_unreachable(index: SourceIndex, node: ast.AST) -> bool:
    """Whether a statement before it in a block leaves the block, or the condition around it is a false constant.

    The cells of a notebook are also run one by one.
    """
    child = node
    for one in index.ancestors(node):
        blocks = (getattr(one, name, None) for name in ("body", "orelse", "finalbody"))
        block = next((each for each in blocks if isinstance(each, list) and child in each), [])
        of_cells = index.is_notebook and one is index.tree
        if not of_cells and any(_leaves_block(index, each) for each in block[: block.index(child) if block else 0]):
            return True
        constant = isinstance(one, (ast.If, ast.While)) and isinstance(one.test, ast.Constant)
        if constant and block is (one.orelse if one.test.value else one.body):  # type: ignore[attr-defined]
            return True
        child = one
    return False


def _leaves_block(index: SourceIndex, statement: ast.stmt) -> bool:
    """Whether nothing behind a statement is reached: it returns, raises, goes on with the loop or ends the program."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return index.call_names[statement.value] in EXITS
    return isinstance(statement, (ast.Return, ast.Raise, ast.Continue, ast.Break))


def _is_in_branch_no_call_takes(index: SourceIndex, node: ast.AST) -> bool:
    """Whether a node stands under `kind == "b"`, or `if fast:`, in a function of a program that no call asks for."""
    child = node
    for one in index.ancestors(node) if index.is_notebook or has_main_guard_or_top_level_block(index) else ():
        in_branch = isinstance(one, ast.If) and child is not one.test
        if in_branch and _has_truth(index, one.test, child not in one.body):  # type: ignore[attr-defined]
            return True
        child = one
    return False


def _has_truth(index: SourceIndex, test: ast.expr, truth: bool) -> bool:
    """Whether a condition on a parameter has this truth for the constants that all calls in this text give."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _has_truth(index, test.operand, not truth)
    if isinstance(test, ast.BoolOp):
        parts = [_has_truth(index, one, truth) for one in test.values]
        return any(parts) if isinstance(test.op, ast.Or) is truth else all(parts)
    compared = isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)
    name = test.left if compared else test  # type: ignore[attr-defined]
    wanted = test.comparators[0] if compared else None  # type: ignore[attr-defined]
    if not isinstance(name, ast.Name) or (compared and not isinstance(wanted, ast.Constant)):
        return False
    given = _list_given_values(index, name)
    return bool(given) and all(
        isinstance(one, ast.Constant)
        and truth is (one.value == wanted.value if isinstance(wanted, ast.Constant) else bool(one.value))
        for one in given
    )


def _list_given_values(index: SourceIndex, name: ast.Name, depth: int = 3) -> list[ast.expr | None]:
    """What all calls in this text give to the parameter of this name, also through a parameter of who calls.

    Nothing for another name, and for a function that nothing calls here or that is called with `*args`.
    """
    function = index.enclosing_def(name)
    bound = index.bindings_of(name)
    calls = _list_calls_by_name(index, function) if function is not None and depth else []
    only_parameter = bool(bound) and all(isinstance(one, ast.arg) for one in bound)
    if function is None or not calls or not only_parameter or any(has_star(one) for one in calls):
        return []
    values: list[ast.expr | None] = []
    for call in calls:
        value = argument_for(call, function, name.id) or default_of(function, name.id)
        passed_on = _list_given_values(index, value, depth - 1) if isinstance(value, ast.Name) else []
        values += passed_on or [value]
    return values


def _list_calls_by_name(index: SourceIndex, function: Function) -> list[ast.Call]:
    """The calls of a function, and of others that its scope defines under the same name, as a notebook does."""
    alike = index.bindings[index.enclosing_scope_of(function)].get(function.name, ())
    return [call for one in alike if isinstance(one, FUNCTIONS) for call in index.calls_of_function(one)]


def _is_in_unreferenced_definition(index: SourceIndex, node: ast.AST) -> bool:
    """Whether a node stands in a function or class that nothing in the project mentions.

    A method may be called by a base of its class, and what is decorated by who knows it.
    """
    outermost = [one for one in index.ancestors(node) if isinstance(one, (*FUNCTIONS, ast.ClassDef))][-2:][::-1]
    for one in outermost:
        owner = index.parents.get(one)
        of_class = isinstance(owner, ast.ClassDef)
        if not of_class and owner is not index.tree:
            return False
        by = {last_identifier(each) for each in one.decorator_list} - {"staticmethod", "classmethod"}
        inherits = of_class and {last_identifier(each) for each in owner.bases} - {"object"}  # type: ignore[union-attr]
        dunder = of_class and one.name.startswith("__")
        if one.name in index.project.definitions_unused_by_living_code and not (by or inherits or dunder):
            return True
    return False


def _is_in_self_check(index: SourceIndex, node: ast.AST) -> bool:
    """Whether a node stands in the main block of a module that only tries out a class of the module, and keeps nothing.

    So does what stands in a function that the block calls.
    """
    block = _find_main_block(index)
    if block is None or not index.is_inside(node, block):
        return False
    todo: list[ast.AST] = [block]
    seen: set[ast.AST] = set()
    constructs = False
    while todo:
        one = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        for call in (part for part in ast.walk(one) if isinstance(part, ast.Call)):
            named = index.bindings_of(call.func) if isinstance(call.func, ast.Name) else []
            of_class = any(isinstance(bound, ast.ClassDef) for bound in named)
            last = last_identifier(call.func)
            if not of_class and EFFECT.search(last) and last not in ("train_test_split", "DataLoader"):
                return False
            constructs = constructs or of_class
            todo += [bound for bound in named if isinstance(bound, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return constructs


def is_tried_out(index: SourceIndex, call: ast.Call) -> bool:
    """Whether a call stands in a main block that neither trains nor keeps anything."""
    block = _find_main_block(index)
    if block is None or not index.is_inside(call, block):
        return False
    return not any(EFFECT.search(last_identifier(one.func)) for one in ast.walk(block) if isinstance(one, ast.Call))


def _find_main_block(index: SourceIndex) -> ast.If | None:
    blocks = (one for one in index.tree.body if isinstance(one, ast.If) and "__name__" in ast.unparse(one.test))
    return next(blocks, None)


def _is_in_test_code(index: SourceIndex, node: ast.AST) -> bool:
    """Whether a node stands in a test, which may draw as it likes: nothing else depends on it."""
    if _is_test_module(index):
        return True
    for one in index.ancestors(node):
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) and (
            one.name.startswith("test") or any("fixture" in ast.unparse(by) for by in one.decorator_list)
        ):
            return True
        if isinstance(one, ast.ClassDef) and (
            one.name.startswith("Test") or any("TestCase" in name for name in index.transitive_base_names(one))
        ):
            return True
    return False


def _is_test_module(index: SourceIndex) -> bool:
    """Whether a text is for pytest or unittest: it imports them, or has test functions with an assertion.

    Training code has functions called test_epoch, without one.
    """
    imported = {alias.name for node in index.nodes[ast.Import] for alias in node.names}  # type: ignore[attr-defined]
    imported |= {node.module or "" for node in index.nodes[ast.ImportFrom]}  # type: ignore[attr-defined]
    if any(one.partition(".")[0] in ("pytest", "unittest") for one in imported):
        return True
    return any(
        isinstance(function := index.enclosing_def(one), ast.FunctionDef) and function.name.startswith("test_")
        for one in index.nodes[ast.Assert]
    )
