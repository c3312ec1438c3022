"""What a slice of a list takes: all elements, some to look at, one part after the other, or a part of the data."""

from __future__ import annotations

import ast
import re

from samerun.base.source_edits import last_identifier
from samerun.lint.call_arguments import argument_for, default_of, is_constant
from samerun.lint.source_index import SourceIndex
from samerun.lint.value_origins import names_in, returned_values

FEWEST = 10
"""So few elements, by a written number, are for looking at: a preview, a check of what is there."""


def takes_no_part(index: SourceIndex, subscript: ast.Subscript, where: ast.Slice) -> bool:
    """Whether a slice does not choose among the elements: it takes all, all but the first, or some to look at."""
    if where.lower is None and where.upper is None and where.step is None:
        return True
    rest = is_constant(where.lower, 1) and where.upper is None and where.step is None  # beside rows[0]
    begins = where.lower is None or is_constant(where.lower, 0)
    few = where.upper.value if isinstance(where.upper, ast.Constant) and begins else None
    if rest or (isinstance(few, int) and 0 < few <= FEWEST) or _is_cut_to_loop_count(index, where):
        return True
    bound = where.upper if begins else where.lower if where.upper is None else None
    if bound is not None and _is_limit_none_unless_given(index, bound):
        return True
    return _is_one_of_all_parts(index, subscript, where) or _is_behind_header(index, subscript, where)


def _is_limit_none_unless_given(index: SourceIndex, limit: ast.expr) -> bool:
    """Whether the end of a slice is an option that is None unless somebody gives it: `names[:limit]`."""
    tests = (part for test in index.enclosing_tests(limit) for part in ast.walk(test))
    if any(isinstance(part, type(limit)) and ast.dump(part) == ast.dump(limit) for part in tests):
        return True
    function = index.enclosing_def(limit)
    if function is None or not isinstance(limit, ast.Name) or not is_constant(default_of(function, limit.id), None):
        return False
    given = (argument_for(call, function, limit.id) for call in index.calls_of_function(function))
    return not any(isinstance(one, ast.Constant) and one.value is not None for one in given)


def _is_cut_to_loop_count(index: SourceIndex, where: ast.Slice) -> bool:
    """Whether a slice cuts an array to what a loop, which counts, has filled of it."""
    names = names_in(where.upper) if where.lower is None and where.upper is not None else []
    statements = [index.parents.get(bound) for name in names for bound in index.bindings_of(name)]
    return any(isinstance(one, ast.AugAssign) and is_constant(one.value, 1) for one in statements)


def _is_one_of_all_parts(index: SourceIndex, subscript: ast.Subscript, where: ast.Slice) -> bool:
    """Whether a loop takes one part after the other, so that every element is in one of them."""
    bounds = [one for one in (where.lower, where.upper) if one is not None]
    if isinstance(subscript.value, ast.Name):  # head = rows[:n], and then rows = rows[n:]
        for bound in index.bindings_of(subscript.value):
            rest = index.assigned_value(bound)
            if isinstance(rest, ast.Subscript) and ast.dump(rest.value) == ast.dump(subscript.value):
                return any(isinstance(one, (ast.For, ast.While)) for one in index.ancestors(rest))
    return any(_is_counted_by_loop(index, name, subscript) for bound in bounds for name in names_in(bound))


def _is_counted_by_loop(index: SourceIndex, name: ast.Name, node: ast.AST, depth: int = 3) -> bool:
    """Whether a name, or what it is computed from, counts the turns of a loop around `node`."""
    around = set(index.ancestors(node))
    for bound in index.bindings_of(name) if depth else ():
        by = index.parents.get(bound)
        if isinstance(by, (ast.For, ast.comprehension)) and around & {by, index.parents[by]} - {index.tree}:
            return True
        if isinstance(by, ast.AugAssign) and any(
            isinstance(one, (ast.For, ast.While)) and one in around for one in index.ancestors(by)
        ):
            return True
        value = index.assigned_value(bound)
        if value is not None and any(_is_counted_by_loop(index, one, node, depth - 1) for one in names_in(value)):
            return True
    return False


def _is_behind_header(index: SourceIndex, subscript: ast.Subscript, where: ast.Slice) -> bool:
    """Whether a slice leaves out only what a list began with: `rows[1:]` of `rows = ["name,size"]`."""
    lower = where.lower.value if isinstance(where.lower, ast.Constant) else None
    if where.upper is not None or where.step is not None or not isinstance(lower, int):
        return False
    todo: list[tuple[ast.AST, int]] = [(subscript.value, 4)]
    while todo:
        node, depth = todo.pop()
        if isinstance(node, ast.List) and 0 < lower <= len(node.elts):
            return True
        function = index.called_function(node) if isinstance(node, ast.Call) else None
        if depth and isinstance(node, ast.Name):
            todo += [(one, depth - 1) for one in index.values_assigned_to(node)]
        elif depth and function is not None:
            todo += [(one, depth - 1) for one in returned_values(index, function)]
    return False


def is_batch(index: SourceIndex, where: ast.Slice) -> bool:
    """Whether a slice is one of many by its number, which a parameter gives: `names[i * size : (i + 1) * size]`."""
    lower, upper = (names_in(one) if one is not None else [] for one in (where.lower, where.upper))
    shared = {one.id for one in lower} & {one.id for one in upper}
    return any(isinstance(bound, ast.arg) for one in lower if one.id in shared for bound in index.bindings_of(one))


def is_cut_set(index: SourceIndex, subscript: ast.Subscript) -> bool:
    """Whether a slice only keeps a set from growing, as a cache does: `seen = set(list(seen)[-16:])`."""
    statement, call, listed = index.statement_of(subscript), index.parents.get(subscript), subscript.value
    if not (isinstance(statement, ast.Assign) and isinstance(listed, ast.Call) and listed.args):
        return False
    made = isinstance(call, ast.Call) and call is statement.value and last_identifier(call.func) in ("set", "frozenset")
    return made and ast.unparse(statement.targets[0]) == ast.unparse(listed.args[0])


PARTS_OF_DATA = re.compile(r"(?<![a-z])(?:train|test|valid|split|holdout|(?:val|dev|eval|fold)(?![a-z]))")


def is_train_test_split_or_has_complement(index: SourceIndex, subscript: ast.Subscript) -> bool:
    """Whether a slice is one part beside another, `rows[:n]` and `rows[n:]`, or has the name of one: `train = ...`."""
    where, parent = subscript.slice, index.parents.get(subscript)
    assert isinstance(where, ast.Slice)
    statement = index.statement_of(subscript)
    named: list[ast.AST | None] = list(statement.targets) if isinstance(statement, ast.Assign) else []
    if isinstance(parent, ast.Dict):
        named = [parent.keys[parent.values.index(subscript)]]
    texts = [ast.unparse(one) for one in named if one is not None]
    texts += [parent.arg or ""] if isinstance(parent, ast.keyword) else []
    return any(PARTS_OF_DATA.search(one.lower()) for one in texts) or _has_other_part(index, subscript, where)


def _has_other_part(index: SourceIndex, subscript: ast.Subscript, where: ast.Slice) -> bool:
    """Whether another slice of the same begins where this one ends, or ends where it begins."""
    function, text = index.enclosing_def(subscript), ast.unparse(subscript.value)
    for one in index.nodes[ast.Subscript]:
        other = one.slice if isinstance(one, ast.Subscript) else None
        if not isinstance(other, ast.Slice) or one is subscript or index.enclosing_def(one) is not function:
            continue
        meets = any(
            end is not None and begin is not None and ast.dump(end) == ast.dump(begin)
            for end, begin in ((where.upper, other.lower), (other.upper, where.lower))
        )
        if meets and ast.unparse(one.value) == text:  # type: ignore[attr-defined]
            return True
    return False
