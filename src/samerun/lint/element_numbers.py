"""Numbers that elements are given by their place in an order: by enumerate(), range(), a counter.

A number harms where it stands for a class: another order of the folders, and every label is another one. The number
of a single file only finds that file again.
"""

from __future__ import annotations

import ast
import re

from samerun.base.source_edits import last_identifier
from samerun.lint.call_arguments import is_constant
from samerun.lint.source_index import SourceIndex

CLASS_NAMES = re.compile(
    "label|class|cls|categor|species|speaker|person|identit|target(?!s?_?(?:b?box|file|path|dir|folder|im))"
    "|vocab|word|token|tag"
)
"""A target may be a class; a box or a file of that name is one of a single image."""
COUNTING = {"range", "count", "arange"}


def assigns_class_or_token_ids_by_name(index: SourceIndex, node: ast.AST) -> bool:
    """Whether numbers are given to classes or words, by the names there: a file's number only finds it again."""
    statement = index.statement_of(node)
    loops = [one for one in index.ancestors(statement) if isinstance(one, ast.For)]
    stored = isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript)
    named = statement.targets[0] if stored else statement  # type: ignore[attr-defined]
    texts = [ast.unparse(named), *(ast.unparse(part) for one in loops for part in (one.target, one.iter))]
    return any(CLASS_NAMES.search(text.lower()) for text in texts)


def is_count(iterated: ast.AST) -> bool:
    """Whether an iterable is `range(n)`, `itertools.count()` or `np.arange(n)`."""
    return isinstance(iterated, ast.Call) and last_identifier(iterated.func) in COUNTING


def numbers_keys(zipped: ast.AST) -> bool:
    """Whether pairs give each element a number, as in `dict(zip(classes, range(n)))`.

    `dict(zip(range(n), classes))` only finds a name again by its number.
    """
    named = isinstance(zipped, ast.Call) and last_identifier(zipped.func) == "zip" and len(zipped.args) == 2
    return named and is_count(zipped.args[1]) and not is_count(zipped.args[0])  # type: ignore[attr-defined]


def enumerated_names(target: ast.expr, iterated: ast.expr) -> set[str]:
    """The names that count the elements in `for number, element in enumerate(...)`, or beside them in zip()."""
    if is_count(iterated):
        return {one.id for one in ast.walk(target) if isinstance(one, ast.Name)}
    if not isinstance(iterated, ast.Call):
        return set()
    last = last_identifier(iterated.func)
    if last == "tqdm" and iterated.args:
        return enumerated_names(target, iterated.args[0])
    if not isinstance(target, ast.Tuple):
        return set()
    if last == "zip" and len(iterated.args) == len(target.elts):
        pairs = zip(target.elts, iterated.args, strict=True)
        return {name.id for name, what in pairs if isinstance(name, ast.Name) and is_count(what)}
    first = target.elts[0]
    return {first.id} if last == "enumerate" and isinstance(first, ast.Name) else set()


def uses_number_outside_subscript(value: ast.expr, numbers: set[str]) -> bool:
    """Whether a value is made of a number itself, not only of what stands there in a list: `classes[number]`."""
    inside = {name for one in ast.walk(value) if isinstance(one, ast.Subscript) for name in ast.walk(one.slice)}
    return any(_is_number_name(one, numbers) and one not in inside for one in ast.walk(value))


def names_that_differ_in_each_iteration(loop: ast.For | ast.AsyncFor, body: list[ast.AST]) -> set[str]:
    """The names that have another number in each turn of a loop: what it counts by, counters, and names for these."""
    numbers = enumerated_names(loop.target, loop.iter)
    for node in body:
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and is_constant(node.value, 1):
            numbers.add(node.target.id)
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in numbers:
            numbers |= {one.id for one in node.targets if isinstance(one, ast.Name)}
    return numbers - _index_names_into_appended_lists(body)


def _index_names_into_appended_lists(body: list[ast.AST]) -> set[str]:
    """The numbers by which a loop only finds its own elements again, in a list to which it appends them."""
    appended = {
        last_identifier(node.func.value) for node in body
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append"
    }  # fmt: skip
    return {
        node.slice.id for node in body
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name)
        and isinstance(node.ctx, ast.Load) and last_identifier(node.value) in appended
    }  # fmt: skip


def appends_number_of_turn(
    index: SourceIndex, grows: ast.Call | ast.AugAssign, loop: ast.For | ast.AsyncFor, numbers: set[str]
) -> bool:
    """Whether what makes a list longer puts the number of a turn there: alone, or for several samples of one turn.

    Only a class has several samples, so that a number beside one sample in each turn is that of the sample.
    """
    values = [grows.value] if isinstance(grows, ast.AugAssign) else grows.args
    if isinstance(grows, ast.Call) and any(_is_number_name(one, numbers) for one in values):
        return not _selects_elements(index, grows, loop)
    if any(_repeats_number(one, numbers) for one in values):
        return True
    around = index.ancestors(grows)
    inner = any(
        isinstance(one, (ast.For, ast.AsyncFor)) and index.is_inside(one, loop) for one in around if one != loop
    )
    return inner and any(_is_container_of_number(one, numbers) for one in values)


def gives_number_to_entry(index: SourceIndex, store: ast.Assign, loop: ast.For | ast.AsyncFor) -> bool:
    """Whether an entry of a dictionary gets the number itself: `numbers[label] = n`.

    Not where the first one is that of an entry with which the dictionary is written: then it is meant to have all
    classes, and the counter is for none.
    """
    target, number = store.targets[0], store.value
    if not isinstance(target, ast.Subscript) or not isinstance(number, ast.Name):
        return False
    written = [one for one in index.values_assigned_to(target.value) if isinstance(one, ast.Dict)]
    taken = {each.value for one in written for each in one.values if isinstance(each, ast.Constant)}
    first = {one.value for one in index.values_assigned_to(number) if isinstance(one, ast.Constant)}
    counted_before = any(
        ast.unparse(one.target) == number.id and index.is_inside(one, loop) and one.lineno < store.lineno
        for one in index.nodes[ast.AugAssign] if isinstance(one, ast.AugAssign)
    )  # fmt: skip
    return counted_before or not taken & first


def _selects_elements(index: SourceIndex, append: ast.Call, loop: ast.For | ast.AsyncFor) -> bool:
    """Whether a loop keeps the numbers of the elements that a condition holds for, and nothing else of them."""
    condition = None
    for one in index.ancestors(append):
        if one is loop:
            break
        if isinstance(one, (ast.For, ast.AsyncFor, ast.While)):
            return False
        condition = one if isinstance(one, ast.If) else condition
    appends = [
        one for statement in loop.body for one in ast.walk(statement)
        if isinstance(one, ast.Call) and last_identifier(one.func) in ("append", "extend")
    ]  # fmt: skip
    return condition is not None and len(appends) == 1


def _is_number_name(value: ast.AST | None, numbers: set[str]) -> bool:
    return isinstance(value, ast.Name) and value.id in numbers


def _repeats_number(value: ast.AST, numbers: set[str]) -> bool:
    """Whether a value is `[number] * n` or `[number for _ in names]`."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        return any(
            isinstance(one, ast.List) and len(one.elts) == 1 and _is_number_name(one.elts[0], numbers)
            for one in (value.left, value.right)
        )
    return isinstance(value, (ast.ListComp, ast.GeneratorExp)) and _is_number_name(value.elt, numbers)


def _is_container_of_number(value: ast.AST, numbers: set[str]) -> bool:
    """Whether a sample is written with the number beside it: `(path, number)`, `{"path": path, "label": number}`."""
    if isinstance(value, (ast.Tuple, ast.List)):
        return any(_is_number_name(one, numbers) or _is_container_of_number(one, numbers) for one in value.elts)
    return isinstance(value, ast.Dict) and any(_is_number_name(one, numbers) for one in value.values)
