"""What becomes of a clock's reading in the user's source: is it only shown, or may it decide something?

Readings are followed by name through assignments, attributes, arguments and results, in every file of the user's that
ran, whatever the order of statements. What is not known to keep a reading among the things that are shown counts as a
decision: one run too many costs less than a wrong answer.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final, Literal

from samerun.base.source_edits import last_identifier
from samerun.check.evidence.line_search import parse_source_or_empty

CLOCK_FUNCTIONS = {
    "time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time",
    "process_time_ns", "thread_time", "thread_time_ns", "default_timer", "now", "utcnow", "today", "localtime",
    "gmtime", "ctime", "strftime", "clock_gettime", "clock_gettime_ns", "times", "getrusage",
}  # fmt: skip
SHOWING_FUNCTIONS = {
    "print", "info", "debug", "warning", "error", "critical", "exception", "write", "add_scalar", "add_scalars",
    "set_description", "set_postfix", "set_postfix_str", "log_metric", "log_metrics", "sleep",
}  # fmt: skip
VALUE_FUNCTIONS = {
    "round", "int", "float", "str", "repr", "abs", "sum", "min", "max", "sorted", "format", "divmod", "len", "mean",
    "median", "timedelta", "strftime", "localtime", "gmtime", "fromtimestamp", "join", "dict", "list", "tuple",
}  # fmt: skip
LOGGERS = {"log", "logger", "logging", "wandb", "mlflow", "math"}
"""Names whose `.log()` shows its arguments, or is a logarithm."""
FILLING_METHODS = {"append", "appendleft", "extend", "add", "insert", "update", "setdefault"}
CONTAINER_CONSTRUCTORS = {"dict", "list", "set", "deque", "defaultdict", "OrderedDict", "Counter"}
ATTRIBUTE: Final = "attribute"
RESULT: Final = "result"
Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
ScopeOrKind = Scope | Literal["attribute", "result"]
Key = tuple[ScopeOrKind, str]
"""A variable of a function or module; an attribute of anything; the result of a function."""


def clock_may_affect_results(reading_lines_by_file: Mapping[str, Iterable[int]]) -> bool:
    """Whether a clock may decide what is computed. `reading_lines_by_file`: the lines that read one."""
    trees = {file: parse_source_or_empty(file) for file in reading_lines_by_file}
    uses = ClockReadingTracker(trees.values())
    for file, lines in reading_lines_by_file.items():
        calls = [node for node in ast.walk(trees[file]) if isinstance(node, ast.Call)]
        for line in lines:
            here = [call for call in calls if call.lineno <= line <= (call.end_lineno or call.lineno)]
            found = [call for call in here if uses.resolve_called_name(call) in CLOCK_FUNCTIONS]
            if not found and not any(uses.only_logs_arguments(call) for call in here):  # a line of a log has its time
                return True
            uses.enqueue(found)
    return uses.may_any_affect_results()


def variable_may_affect_results(files: Iterable[str], file: str, line: int, name: str) -> bool:
    """Whether a variable that gets its value on a line may decide what is computed; of a function's result, it may."""
    trees = {each: parse_source_or_empty(each) for each in {*files, file}}
    uses = ClockReadingTracker(trees.values())
    statements = [
        node for node in ast.walk(trees[file])
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]  # fmt: skip
    named = [each for each in statements if any(isinstance(t, ast.Name) and t.id == name for t in list_targets(each))]
    uses.enqueue(each.value for each in named if each.value is not None)
    return not named or uses.may_any_affect_results()


def list_targets(statement: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return statement.targets if isinstance(statement, ast.Assign) else [statement.target]


class ClockReadingTracker:
    """Which variables hold what was made of a reading, and whether one is used for more than to be shown."""

    def __init__(self, trees: Iterable[ast.Module]) -> None:
        self.above: dict[ast.AST, ast.AST] = {}
        self.scopes: dict[ast.AST, Scope] = {}
        self.loads: dict[str, list[ast.expr]] = {}
        self.stored: dict[str, list[ast.Name | ast.Attribute]] = {}
        self.functions: dict[str, list[Function]] = {}
        self.full_names: dict[str, str] = {}
        self.imported: set[str] = set()
        self.followed: set[ast.AST] = set()
        self.held: set[Key] = set()
        self._waiting: list[ast.AST] = []
        unread: list[tuple[ast.AST, Scope]] = [(tree, tree) for tree in trees]
        while unread:
            node, scope = unread.pop()
            self.scopes[node] = scope
            self._index_node(node)
            inner = node if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) else scope
            for child in ast.iter_child_nodes(node):
                self.above[child] = node
                unread.append((child, inner))

    def _index_node(self, node: ast.AST) -> None:
        if isinstance(node, (ast.Name, ast.Attribute)):
            if isinstance(node.ctx, ast.Load):
                self.loads.setdefault(last_identifier(node), []).append(node)
            else:
                self.stored.setdefault(last_identifier(node), []).append(node)
        elif isinstance(node, ast.Call) and last_identifier(node.func) in ("getattr", "attrgetter"):
            for each in node.args:
                if isinstance(each, ast.Constant):
                    self.loads.setdefault(str(each.value), []).append(node)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.functions.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.ClassDef):
            made = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
            self.functions.setdefault(node.name, []).extend(made)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for name in node.names:
                self.imported.add((name.asname or name.name).split(".")[0])
                if name.asname:
                    self.full_names[name.asname] = name.name

    def resolve_called_name(self, call: ast.Call) -> str:
        """The last name of what is called, as it is called where it was imported from."""
        name = last_identifier(call.func)
        return self.full_names.get(name, name)

    def only_logs_arguments(self, call: ast.Call) -> bool:
        """Is this a function that only shows its arguments? Not where the program has one of that name."""
        name = self.resolve_called_name(call)
        if name in self.functions or name in self.stored:
            return False
        if name == "log":
            return isinstance(call.func, ast.Attribute) and last_identifier(call.func.value) in LOGGERS
        return name in SHOWING_FUNCTIONS

    def enqueue(self, nodes: Iterable[ast.AST]) -> None:
        self._waiting += nodes

    def may_any_affect_results(self) -> bool:
        """Whether anything that is followed, or what is made of it, may decide something."""
        while self._waiting:
            node = self._waiting.pop()
            if node not in self.followed:
                self.followed.add(node)
                if not self._follow_one_step_if_traceable(node):
                    return True
        return False

    def _follow_one_step_if_traceable(self, node: ast.AST) -> bool:
        """Follows a value one step on; False where it may decide something there."""
        above: Any = self.above.get(node)
        if isinstance(above, ast.Expr):
            return True
        if isinstance(above, ast.keyword):
            call: Any = self.above[above]
            return (
                isinstance(call, ast.Call)
                and above.arg is not None
                and self._follow_into_call_if_traceable(above, call)
            )
        if isinstance(above, ast.Call):
            return self._follow_into_call_if_traceable(node, above)
        if isinstance(above, ast.Return):
            return self._follow_return_if_traceable(above)
        if isinstance(above, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            targets = above.targets if isinstance(above, ast.Assign) else [above.target]
            return all(self._mark_target_if_traceable(target) for target in targets)
        if isinstance(above, ast.Tuple) and isinstance(self.above[above], ast.Assign):
            parts = [tuple_unpacking_targets_or_empty(target, above) for target in self.above[above].targets]  # type: ignore[attr-defined]
            if all(parts):
                return all(self._mark_target_if_traceable(each[above.elts.index(node)]) for each in parts)  # type: ignore[arg-type]
        self.enqueue([above])
        if isinstance(above, ast.NamedExpr):
            return self._mark_target_if_traceable(above.target)
        if isinstance(above, ast.IfExp):  # where nothing is called, a value is chosen: that is a value again
            return node is not above.test or not contains_calls(above.body, above.orelse)
        if isinstance(above, ast.BoolOp):
            return not contains_calls(*above.values[above.values.index(node) + 1 :])  # type: ignore[arg-type]
        if isinstance(above, ast.Compare):
            return len(above.ops) == 1
        if isinstance(above, (ast.Subscript, ast.DictComp)):
            return node is above.value
        if isinstance(above, ast.Dict):
            return node in above.values
        if isinstance(above, ast.Lambda):
            return node is above.body
        kept = (ast.BinOp, ast.UnaryOp, ast.FormattedValue, ast.JoinedStr, ast.Tuple, ast.List, ast.ListComp,
                ast.GeneratorExp, ast.Attribute)  # fmt: skip
        return isinstance(above, kept) and isinstance(getattr(above, "ctx", ast.Load()), ast.Load)

    def _follow_into_call_if_traceable(self, node: Any, call: ast.Call) -> bool:
        """A reading is an argument, or what is called holds one."""
        name = self.resolve_called_name(call)
        functions = self.functions.get(name, [])
        if node is call.func:
            self.enqueue([call])
            if isinstance(node, ast.Attribute) and node.value in self.followed:
                self._mark_holders_and_enqueue_uses(
                    (function, each.arg) for function in functions for each in function.args.args[:1]
                )
            return True
        if functions:
            return all(self._follow_into_parameter_if_known(function, node, call) for function in functions)
        self.enqueue([call])
        if name in self.stored:
            return False
        if name in FILLING_METHODS and isinstance(call.func, ast.Attribute):
            return self._mark_container_if_traceable(call.func.value)
        return self.only_logs_arguments(call) or name in VALUE_FUNCTIONS

    def _follow_into_parameter_if_known(self, function: Function, node: Any, call: ast.Call) -> bool:
        """A parameter of a function of the user's holds a reading."""
        named = [*function.args.posonlyargs, *function.args.args]
        if isinstance(node, ast.keyword):
            found = [each for each in (*named, *function.args.kwonlyargs) if each.arg == node.arg]
        elif any(isinstance(each, ast.Starred) for each in call.args):
            return False
        else:
            at = call.args.index(node) + (bool(named) and named[0].arg in ("self", "cls"))
            found = named[at : at + 1]
        self._mark_holders_and_enqueue_uses((function, each.arg) for each in found)
        return bool(found)

    def _follow_return_if_traceable(self, node: ast.Return) -> bool:
        function = self.scopes[node]
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or function.name.startswith("__"):
            return False
        self._mark_holders_and_enqueue_uses([(RESULT, function.name)])
        return all(
            last_identifier(each) in ("property", "staticmethod", "classmethod") for each in function.decorator_list
        )

    def _mark_target_if_traceable(self, target: ast.expr) -> bool:
        """What is assigned to holds a reading from now on."""
        if isinstance(target, ast.Subscript):
            return self._mark_container_if_traceable(target.value)
        if isinstance(target, (ast.Tuple, ast.List)):
            return all(self._mark_target_if_traceable(each) for each in target.elts)
        if isinstance(target, ast.Attribute):
            self._mark_holders_and_enqueue_uses([(ATTRIBUTE, target.attr)])
        elif isinstance(target, ast.Name):
            scope = self.find_scope_of_variable(target)
            if isinstance(scope, ast.Module):  # or of a class in it
                self._mark_holders_and_enqueue_uses([(ATTRIBUTE, target.id)] if self._is_in_class_body(target) else [])
            self._mark_holders_and_enqueue_uses([(scope, target.id)])
        return isinstance(target, (ast.Attribute, ast.Name))

    def _mark_container_if_traceable(self, container: ast.expr) -> bool:
        """A container holds a reading: one that is known by a single name, under which it was made."""
        if not isinstance(container, (ast.Name, ast.Attribute)):
            return False
        made = self.stored.get(last_identifier(container), [])
        if isinstance(container, ast.Name):
            scope = self.find_scope_of_variable(container)
            made = [each for each in made if isinstance(each, ast.Name) and self.find_scope_of_variable(each) is scope]
            if any(each.arg == container.id for each in list_parameters(scope)):
                return False
        return (
            bool(made)
            and all(self._is_assigned_new_container(each) for each in made)
            and self._mark_target_if_traceable(container)
        )

    def _is_assigned_new_container(self, target: ast.AST) -> bool:
        """Is a new container assigned here?"""
        above: Any = self.above[target]
        single = isinstance(above, ast.AnnAssign) or (isinstance(above, ast.Assign) and len(above.targets) == 1)
        value = above.value if single else None
        if isinstance(above, ast.Tuple) and isinstance(self.above[above], ast.Assign):
            parts = tuple_unpacking_targets_or_empty(above, self.above[above].value)  # type: ignore[attr-defined]
            value = self.above[above].value.elts[above.elts.index(target)] if parts else None  # type: ignore
        if isinstance(value, ast.Call):
            return self.resolve_called_name(value) in CONTAINER_CONSTRUCTORS and not value.args[1:]
        return isinstance(value, (ast.Dict, ast.List, ast.ListComp, ast.DictComp, ast.Set))

    def _mark_holders_and_enqueue_uses(self, keys: Iterable[Key]) -> None:
        for key in keys:
            if key not in self.held:
                self.held.add(key)
                self.enqueue(self._find_loads(*key))

    def _find_loads(self, scope_or_kind: ScopeOrKind, name: str) -> Iterator[ast.expr]:
        """Where a variable, an attribute or a function is used."""
        shorts = [short for short, full in self.full_names.items() if full == name]
        for node in chain.from_iterable(self.loads.get(each, []) for each in (name, *shorts)):
            if isinstance(scope_or_kind, str):
                fits = scope_or_kind == RESULT or not isinstance(node, ast.Name)
            elif isinstance(node, ast.Name):
                fits = scope_or_kind in self._enclosing_scopes(node) or (
                    isinstance(scope_or_kind, ast.Module) and node.id in self.imported
                )
            else:
                fits = (
                    isinstance(scope_or_kind, ast.Module)
                    and last_identifier(getattr(node, "value", node)) in self.imported
                )
            if fits:
                yield node

    def _enclosing_scopes(self, node: ast.AST) -> Iterator[Scope]:
        """The functions that a node stands in, the innermost first, and its module."""
        scope = self.scopes[node]
        while not isinstance(scope, ast.Module):
            yield scope
            scope = self.scopes[scope]
        yield scope

    def find_scope_of_variable(self, variable: ast.Name) -> Scope:
        """The function that a variable belongs to, or its module."""
        scope: Scope = self.scopes[variable]
        for scope in self._enclosing_scopes(variable):
            shared = (ast.Global, ast.Nonlocal)
            if any(isinstance(each, shared) and variable.id in each.names for each in ast.walk(scope)):
                continue
            if any(each.arg == variable.id for each in list_parameters(scope)) or any(
                self.scopes[each] is scope for each in self.stored.get(variable.id, [])
            ):
                return scope
        return scope

    def _is_in_class_body(self, node: ast.AST) -> bool:
        while node in self.above and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node = self.above[node]
            if isinstance(node, ast.ClassDef):
                return True
        return False


def tuple_unpacking_targets_or_empty(target: ast.AST, value: ast.AST) -> list[ast.expr]:
    """The parts of a target, where those of the value go to them one by one; else nothing."""
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple) or len(target.elts) != len(value.elts):
        return []
    return [] if any(isinstance(each, ast.Starred) for each in (*target.elts, *value.elts)) else target.elts


def contains_calls(*nodes: ast.AST) -> bool:
    return any(isinstance(each, ast.Call) for node in nodes for each in ast.walk(node))


def list_parameters(scope: Scope) -> list[ast.arg]:
    return [] if isinstance(scope, ast.Module) else [each for each in ast.walk(scope.args) if isinstance(each, ast.arg)]
