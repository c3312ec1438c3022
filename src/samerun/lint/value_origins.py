"""Where a value comes from: from an expression backward, through assignments, parameters and results of functions.

It answers two questions: does a seed come from the clock, an address or the system's entropy; and what are the
elements of a set made of, on which its order depends.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Literal

from samerun.base.source_edits import last_identifier
from samerun.lint.call_arguments import argument_for, default_of
from samerun.lint.source_index import FUNCTIONS, Function, SourceIndex

MAX_STEPS = 200

TRANSPARENT = {
    "int", "abs", "float", "round", "str", "repr", "sum", "min", "max", "pow", "from_bytes", "crc32", "adler32", "md5",
    "sha1", "sha256", "sha512", "bytes", "bytearray", "int32", "uint32", "int64", "uint64", "format", "list", "tuple",
    "divmod", "frombuffer", "fromstring", "item", "encode", "hexdigest", "digest", "timestamp", "strftime", "replace",
    "total_seconds", "isoformat", "unpack", "split", "strip", "literal_eval", "hash", "tensor", "LongTensor",
}  # fmt: skip
"""Functions and methods whose result depends on what they are given."""


def find_origins(index: SourceIndex, value: ast.expr) -> Iterator[ast.Call]:
    """The calls whose results reach a value, nearest first: through arithmetic, assignments, parameters, results."""
    todo: list[ast.AST] = [value]
    seen: set[ast.AST] = set()
    while todo and len(seen) < MAX_STEPS:
        node = todo.pop(0)
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, ast.Call):
            yield node
        todo += _list_expressions_making_up_value(index, node)


def _list_expressions_making_up_value(index: SourceIndex, node: ast.AST) -> Sequence[ast.AST]:
    """The expressions that a value is made of."""
    if isinstance(node, ast.Call):
        function = index.called_function(node)
        if function is not None:
            return list(returned_values(index, function))
        if last_identifier(node.func) not in TRANSPARENT:
            return []
        receiver = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return [*receiver, *node.args, *(keyword.value for keyword in node.keywords)]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.BoolOp):
        return [*node.values]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return [*node.elts]
    if isinstance(node, ast.JoinedStr):
        return [*node.values]
    if isinstance(node, (ast.FormattedValue, ast.NamedExpr, ast.Starred, ast.Subscript, ast.Await)):
        return [node.value]
    if isinstance(node, ast.Attribute):
        stored = list(_values_stored_in_attribute(index, node))
        return stored or [node.value]
    if isinstance(node, ast.Name):
        sources: list[ast.AST] = []
        for bound in index.bindings_of(node):
            if isinstance(bound, ast.arg):
                sources += argument_or_default_of_each_call(index, bound)
            else:
                value = index.assigned_value(bound)
                if value is not None:
                    sources.append(value)
        return sources
    return []


def _values_stored_in_attribute(index: SourceIndex, node: ast.Attribute) -> Iterator[ast.expr]:
    """What an attribute is given in the text: of self in its class, of another name wherever it stands."""
    if not isinstance(node.value, ast.Name):
        return
    if node.value.id in ("self", "cls"):
        yield from index.values_assigned_to(node)
        return
    for other in index.nodes[ast.Attribute]:
        if (
            isinstance(other, ast.Attribute)
            and other.attr == node.attr
            and isinstance(other.ctx, ast.Store)
            and isinstance(other.value, ast.Name)
            and other.value.id == node.value.id
        ):
            value = index.assigned_value(other)
            if value is not None:
                yield value


def returned_values(index: SourceIndex, function: Function) -> Iterator[ast.expr]:
    """The values that a function of the text returns."""
    for node in index.nodes[ast.Return]:
        if isinstance(node, ast.Return) and node.value is not None and index.enclosing_def(node) is function:
            yield node.value


def loads_bound_in(index: SourceIndex, name: str, scope: ast.AST | None) -> list[ast.Name]:
    """Where a name is read that a scope binds."""
    return [one for one in index.name_loads.get(name, ()) if index.binding_scope(one) is scope]


def loads_of_assigned_variable(index: SourceIndex, value: ast.AST) -> list[ast.Name]:
    """Where the variable is read to which a value is assigned; none where it goes elsewhere."""
    parent = index.parents.get(value)
    target = parent.targets[0] if isinstance(parent, ast.Assign) else None
    if not isinstance(target, ast.Name):
        return []
    return loads_bound_in(index, target.id, index.enclosing_scope_of(target))


def argument_or_default_of_each_call(index: SourceIndex, parameter: ast.arg) -> Iterator[ast.expr]:
    """What the calls in this text give to a parameter."""
    function = index.enclosing_scope_of(parameter)
    if isinstance(function, FUNCTIONS):
        for call in index.calls_of_function(function):
            value = argument_for(call, function, parameter.arg)
            if value is None:
                value = default_of(function, parameter.arg)
            if value is not None:
                yield value


# --- what elements are
ElementKind = Literal["number", "text", "object", "unknown"]
"""numbers hash to themselves; the hash of text changes with PYTHONHASHSEED, that of objects is their address."""

TEXT_WORDS = re.compile(
    r"(?:^|_)(?:words?|tokens?|chars?|characters?|names?|vocab|vocabulary|tags?|keys?|texts?|sentences?|strings?"
    r"|strs?|paths?|files?|filenames?|fnames?|symbols?|genes?|species|languages?|langs?|lines?|urls?|hashtags?"
    r"|extensions?|suffixes|prefixes|folders?|dirs?|alphabet|phonemes?|captions?|queries|titles?|stems?|uids?)$"
)
NUMBER_WORDS = re.compile(
    r"(?:^|_)(?:seed|rank|epoch|step|iteration|idx|index|indices|count|offset|size|length|port|worker_id|node_id)s?$"
)
TEXT_METHODS = {
    "lower", "upper", "strip", "lstrip", "rstrip", "format", "join", "replace", "title", "decode", "basename",
    "dirname", "group", "hexdigest", "casefold", "capitalize", "read", "as_posix",
}  # fmt: skip
TEXT_LISTS = {"split", "splitlines", "listdir", "glob", "rsplit", "readlines", "findall", "tokenize", "word_tokenize"}
NUMBER_MAKERS = {"int", "len", "float", "round", "abs", "ord", "item", "argmax", "sum", "min", "max", "index"}
NUMBER_LISTS = {"range", "arange", "tolist", "numpy", "unique", "nonzero", "argsort", "randperm", "permutation"}
OBJECT_LISTS = {"parameters", "modules", "children", "buffers"}
PASSED_THROUGH = {"list", "tuple", "sorted", "set", "frozenset", "reversed", "chain", "copy", "union", "intersection",
                  "difference", "symmetric_difference", "filter", "iter", "tqdm", "from_iterable"}  # fmt: skip


def element_kind(index: SourceIndex, iterable: ast.expr, depth: int = 6) -> ElementKind:
    """What the elements of an iterable are, as far as the text says."""
    if depth <= 0:
        return "unknown"
    if isinstance(iterable, ast.Constant):
        return "text" if isinstance(iterable.value, str) else "unknown"
    if isinstance(iterable, (ast.Set, ast.List, ast.Tuple)):
        return _pick_text_then_object_then_number(
            element_kind(index, one.value, depth - 1)
            if isinstance(one, ast.Starred)
            else value_kind(index, one, depth - 1)
            for one in iterable.elts[:50]
        )
    if isinstance(iterable, (ast.SetComp, ast.ListComp, ast.GeneratorExp)):
        return value_kind(index, iterable.elt, depth - 1)
    if isinstance(iterable, (ast.Dict, ast.DictComp)):
        keys = iterable.keys[:50] if isinstance(iterable, ast.Dict) else [iterable.key]
        return _pick_text_then_object_then_number(value_kind(index, key, depth - 1) for key in keys if key is not None)
    if isinstance(iterable, ast.BinOp):
        return _pick_text_then_object_then_number(
            element_kind(index, one, depth - 1) for one in (iterable.left, iterable.right)
        )
    if isinstance(iterable, ast.Subscript) and isinstance(iterable.slice, ast.Slice):
        return element_kind(index, iterable.value, depth - 1)
    if isinstance(iterable, ast.Call):
        last = last_identifier(iterable.func)
        if last in TEXT_LISTS or last in TEXT_METHODS:  # the elements of text are text
            return "text"
        if last == "values" and isinstance(iterable.func, ast.Attribute):
            return _dict_value_kind(index, iterable.func.value, depth)
        if last in NUMBER_LISTS:
            return "number"
        if last in OBJECT_LISTS:
            return "object"
        if last in PASSED_THROUGH or last in ("keys", "copy"):
            if iterable.args:
                return _pick_text_then_object_then_number(element_kind(index, one, depth - 1) for one in iterable.args)
            if isinstance(iterable.func, ast.Attribute):
                return element_kind(index, iterable.func.value, depth - 1)
            return "unknown"
        if last == "map" and len(iterable.args) > 1:
            return {"str": "text", "int": "number"}.get(last_identifier(iterable.args[0]), "unknown")  # type: ignore
        function = index.called_function(iterable)
        if function is not None:
            return _pick_text_then_object_then_number(
                element_kind(index, one, depth - 1) for one in returned_values(index, function)
            )
        return "unknown"
    if isinstance(iterable, ast.Name):
        kinds = [_added_kind(index, iterable, depth)]
        for bound in index.bindings_of(iterable):
            if isinstance(bound, ast.arg):
                kinds.append(_annotated_kind(bound, elements=True))
                kinds += [element_kind(index, one, depth - 1) for one in argument_or_default_of_each_call(index, bound)]
            else:
                value = index.assigned_value(bound)
                kinds.append(element_kind(index, value, depth - 1) if value is not None else "unknown")
        kind = _pick_text_then_object_then_number(kinds)
        return "text" if kind == "unknown" and TEXT_WORDS.search(iterable.id.lower()) else kind
    if isinstance(iterable, ast.Attribute):
        kinds = [_added_kind(index, iterable, depth)]
        kinds += [element_kind(index, value, depth - 1) for value in index.values_assigned_to(iterable)]
        kind = _pick_text_then_object_then_number(kinds)
        return "text" if kind == "unknown" and TEXT_WORDS.search(iterable.attr.lower()) else kind
    return "unknown"


def value_kind(index: SourceIndex, value: ast.expr, depth: int = 6) -> ElementKind:
    """What one element is; of a tuple, its least repeatable part."""
    if depth <= 0:
        return "unknown"
    if isinstance(value, ast.Constant):
        number = isinstance(value.value, (int, float)) or value.value is None
        return "number" if number else "text" if isinstance(value.value, (str, bytes)) else "unknown"
    if isinstance(value, ast.JoinedStr):
        return "text"
    if isinstance(value, (ast.Tuple, ast.IfExp, ast.BoolOp, ast.BinOp)):
        if isinstance(value, ast.BinOp):
            parts = [value.left, value.right]
            if isinstance(value.op, ast.Mod) and value_kind(index, value.left, depth - 1) == "text":
                return "text"
        elif isinstance(value, ast.IfExp):
            parts = [value.body, value.orelse]
        else:
            parts = value.elts if isinstance(value, ast.Tuple) else value.values
        return _pick_text_then_object_then_number(value_kind(index, one, depth - 1) for one in parts)
    if isinstance(value, ast.Call):
        last = last_identifier(value.func)
        if last in TEXT_METHODS or (isinstance(value.func, ast.Name) and last == "str"):
            return "text"
        if last in NUMBER_MAKERS:
            return "number"
        return "unknown"
    if isinstance(value, ast.Subscript):
        if key_name_suggests_text(value.slice):
            return "text"
        if isinstance(value.value, (ast.Name, ast.Attribute)) and not isinstance(value.slice, ast.Slice):
            return element_kind(index, value.value, depth - 1)
        return "unknown"
    if isinstance(value, ast.Attribute):
        return "text" if value.attr in ("name", "stem", "suffix") else _hinted(value.attr)
    if isinstance(value, ast.Name):
        kinds: list[ElementKind] = []
        for bound in index.bindings_of(value):
            parent = index.parents.get(bound)
            if isinstance(parent, (ast.For, ast.comprehension)) and parent.target is bound:
                kinds.append(element_kind(index, parent.iter, depth - 1))
            elif isinstance(bound, ast.arg):
                kinds.append(_annotated_kind(bound, elements=False))
            else:
                assigned = index.assigned_value(bound)
                kinds.append(value_kind(index, assigned, depth - 1) if assigned is not None else "unknown")
        kind = _pick_text_then_object_then_number(kinds)
        return _hinted(value.id) if kind == "unknown" else kind
    return "unknown"


def key_name_suggests_text(key: ast.expr) -> bool:
    """Whether a constant key names text: `row["word"]`."""
    return isinstance(key, ast.Constant) and isinstance(key.value, str) and _hinted(key.value) == "text"


def _hinted(name: str) -> ElementKind:
    if TEXT_WORDS.search(name.lower()):
        return "text"
    return "number" if NUMBER_WORDS.search(name.lower()) else "unknown"


def _annotated_kind(parameter: ast.arg, *, elements: bool) -> ElementKind:
    """What a parameter is annotated to be, or, with `elements`, what its elements are."""
    words = re.findall(r"\w+", ast.unparse(parameter.annotation)) if parameter.annotation is not None else []
    kinds = {"str": "text", "bytes": "text", "Path": "text", "int": "number", "float": "number", "bool": "number"}
    inner = [word for word in words if word in kinds]
    if not inner or (elements and len(words) == 1 and inner[0] != "str") or (not elements and len(words) > 2):
        return "unknown"
    return kinds[inner[0]]  # type: ignore[return-value]


def _added_kind(index: SourceIndex, target: ast.Name | ast.Attribute, depth: int) -> ElementKind:
    """What is added to a set that began empty."""
    kinds: list[ElementKind] = []
    for method in ("add", "update"):
        for call in index.calls_by_last_name.get(method, ()):
            if (
                isinstance(call.func, ast.Attribute)
                and call.args
                and _is_same_variable_or_self_attribute(index, call.func.value, target)
            ):
                one = call.args[0]
                kinds.append(
                    value_kind(index, one, depth - 1) if method == "add" else element_kind(index, one, depth - 1)
                )
    return _pick_text_then_object_then_number(kinds)


def _dict_value_kind(index: SourceIndex, target: ast.expr, depth: int) -> ElementKind:
    """What the values of a dictionary are that stores under keys have filled."""
    kinds: list[ElementKind] = []
    for one in index.nodes[ast.Subscript]:
        if isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Store) and isinstance(target, ast.Name):
            value = index.assigned_value(one)
            if value is not None and _is_same_variable_or_self_attribute(index, one.value, target):
                kinds.append(value_kind(index, value, depth - 1))
    return _pick_text_then_object_then_number(kinds)


def _is_same_variable_or_self_attribute(index: SourceIndex, a: ast.expr, b: ast.Name | ast.Attribute) -> bool:
    if isinstance(a, ast.Name) and isinstance(b, ast.Name):
        return a.id == b.id and index.binding_scope(a) is index.binding_scope(b)
    if isinstance(a, ast.Attribute) and isinstance(b, ast.Attribute):
        return a.attr == b.attr and index.class_of(a) is index.class_of(b) and last_identifier(a.value) == "self"
    return False


def _pick_text_then_object_then_number(kinds: Iterator[ElementKind] | list[ElementKind]) -> ElementKind:
    """Text where a part is text, objects where one is an object; numbers only where nothing else is known."""
    every = set(kinds)
    for kind in ("text", "object", "number"):
        if kind in every:
            return kind
    return "unknown"


def names_in(node: ast.AST) -> list[ast.Name]:
    return [one for one in ast.walk(node) if isinstance(one, ast.Name)]
