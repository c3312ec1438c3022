"""What becomes of a clock's reading in the user's source: is it only shown, or may it decide something?

Readings are followed by name through assignments, attributes, arguments and results, in every file of the user's that
ran, whatever the order of statements. What is not known to keep a reading among the things that are shown counts as a
decision: one run too many costs less than a wrong answer.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from samerun.check.evidence.line_search import parse_source
from samerun.check.evidence.source import last_name

READ = {
    "time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time",
    "process_time_ns", "thread_time", "thread_time_ns", "default_timer", "now", "utcnow", "today", "localtime",
    "gmtime", "ctime", "strftime",
}  # fmt: skip
SHOWS = {
    "print", "info", "debug", "warning", "error", "critical", "exception", "write", "add_scalar", "add_scalars",
    "set_description", "set_postfix", "set_postfix_str", "log_metric", "log_metrics", "sleep",
}  # fmt: skip
GIVES = {
    "round", "int", "float", "str", "repr", "abs", "sum", "min", "max", "sorted", "format", "divmod", "len", "mean",
    "median", "timedelta", "strftime", "localtime", "gmtime", "fromtimestamp", "join", "dict", "list", "tuple",
}  # fmt: skip
LOGS = {"log", "logger", "logging", "wandb", "mlflow", "math"}
"""Names whose `.log()` shows its arguments, or is a logarithm."""
FILLS = {"append", "appendleft", "extend", "add", "insert", "update", "setdefault"}
MAKES = {"dict", "list", "set", "deque", "defaultdict", "OrderedDict", "Counter"}
ATTRIBUTE, RESULT = "attribute", "result"
Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Key = tuple[Scope | str, str]
"""A variable of a function or module; an attribute of anything; the result of a function."""


def may_decide(readings: Mapping[str, Iterable[int]]) -> bool:
    """Whether a clock may decide what is computed. Given are all files that ran, with the lines that read a clock."""
    trees = {file: parse_source(file) for file in readings}
    uses = Uses(trees.values())
    for file, lines in readings.items():
        calls = [node for node in ast.walk(trees[file]) if isinstance(node, ast.Call)]
        for line in lines:
            here = [call for call in calls if call.lineno <= line <= (call.end_lineno or call.lineno)]
            found = [call for call in here if uses.called(call) in READ]
            if not found and not any(uses.shows(call) for call in here):  # a line of a log has its time
                return True
            uses.follow(found)
    return uses.decide()


class Uses:
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
            self._read(node)
            inner = node if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) else scope
            for child in ast.iter_child_nodes(node):
                self.above[child] = node
                unread.append((child, inner))

    def _read(self, node: ast.AST) -> None:
        if isinstance(node, (ast.Name, ast.Attribute)):
            if isinstance(node.ctx, ast.Load):
                self.loads.setdefault(last_name(node), []).append(node)
            else:
                self.stored.setdefault(last_name(node), []).append(node)
        elif isinstance(node, ast.Call) and last_name(node.func) in ("getattr", "attrgetter"):
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

    def called(self, call: ast.Call) -> str:
        """The last name of what is called, as it is called where it was imported from."""
        name = last_name(call.func)
        return self.full_names.get(name, name)

    def shows(self, call: ast.Call) -> bool:
        """Is this a function that only shows its arguments? Not where the program has one of that name."""
        name = self.called(call)
        if name in self.functions or name in self.stored:
            return False
        if name == "log":
            return isinstance(call.func, ast.Attribute) and last_name(call.func.value) in LOGS
        return name in SHOWS

    def follow(self, nodes: Iterable[ast.AST]) -> None:
        self._waiting += nodes

    def decide(self) -> bool:
        """Whether anything that is followed, or what is made of it, may decide something."""
        while self._waiting:
            node = self._waiting.pop()
            if node not in self.followed:
                self.followed.add(node)
                if not self._is_kept(node):
                    return True
        return False

    def _is_kept(self, node: ast.AST) -> bool:
        """Follows a value one step on; False where it may decide something there."""
        above: Any = self.above.get(node)
        if isinstance(above, ast.Expr):
            return True
        if isinstance(above, ast.keyword):
            call: Any = self.above[above]
            return isinstance(call, ast.Call) and above.arg is not None and self._pass(above, call)
        if isinstance(above, ast.Call):
            return self._pass(node, above)
        if isinstance(above, ast.Return):
            return self._give_back(above)
        if isinstance(above, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            targets = above.targets if isinstance(above, ast.Assign) else [above.target]
            return all(self._hold(target) for target in targets)
        if isinstance(above, ast.Tuple) and isinstance(self.above[above], ast.Assign):
            parts = [parts_of(target, above) for target in self.above[above].targets]  # type: ignore[attr-defined]
            if all(parts):
                return all(self._hold(each[above.elts.index(node)]) for each in parts)  # type: ignore[arg-type]
        self.follow([above])
        if isinstance(above, ast.NamedExpr):
            return self._hold(above.target)
        if isinstance(above, ast.IfExp):  # where nothing is called, a value is chosen: that is a value again
            return node is not above.test or not has_calls(above.body, above.orelse)
        if isinstance(above, ast.BoolOp):
            return not has_calls(*above.values[above.values.index(node) + 1 :])  # type: ignore[arg-type]
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

    def _pass(self, node: Any, call: ast.Call) -> bool:
        """A reading is an argument, or what is called holds one."""
        name = self.called(call)
        functions = self.functions.get(name, [])
        if node is call.func:
            self.follow([call])
            if isinstance(node, ast.Attribute) and node.value in self.followed:
                self._hold_each((function, each.arg) for function in functions for each in function.args.args[:1])
            return True
        if functions:
            return all(self._pass_to(function, node, call) for function in functions)
        self.follow([call])
        if name in self.stored:
            return False
        if name in FILLS and isinstance(call.func, ast.Attribute):
            return self._fill(call.func.value)
        return self.shows(call) or name in GIVES

    def _pass_to(self, function: Function, node: Any, call: ast.Call) -> bool:
        """A parameter of a function of the user's holds a reading."""
        named = [*function.args.posonlyargs, *function.args.args]
        if isinstance(node, ast.keyword):
            found = [each for each in (*named, *function.args.kwonlyargs) if each.arg == node.arg]
        elif any(isinstance(each, ast.Starred) for each in call.args):
            return False
        else:
            at = call.args.index(node) + (bool(named) and named[0].arg in ("self", "cls"))
            found = named[at : at + 1]
        self._hold_each((function, each.arg) for each in found)
        return bool(found)

    def _give_back(self, node: ast.Return) -> bool:
        function = self.scopes[node]
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or function.name.startswith("__"):
            return False
        self._hold_each([(RESULT, function.name)])
        return all(last_name(each) in ("property", "staticmethod", "classmethod") for each in function.decorator_list)

    def _hold(self, target: ast.expr) -> bool:
        """What is assigned to holds a reading from now on."""
        if isinstance(target, ast.Subscript):
            return self._fill(target.value)
        if isinstance(target, (ast.Tuple, ast.List)):
            return all(self._hold(each) for each in target.elts)
        if isinstance(target, ast.Attribute):
            self._hold_each([(ATTRIBUTE, target.attr)])
        elif isinstance(target, ast.Name):
            scope = self._scope_of(target)
            if isinstance(scope, ast.Module):  # or of a class in it
                self._hold_each([(ATTRIBUTE, target.id)] if self._in_class(target) else [])
            self._hold_each([(scope, target.id)])
        return isinstance(target, (ast.Attribute, ast.Name))

    def _fill(self, container: ast.expr) -> bool:
        """A container holds a reading: one that is known by a single name, under which it was made."""
        if not isinstance(container, (ast.Name, ast.Attribute)):
            return False
        made = self.stored.get(last_name(container), [])
        if isinstance(container, ast.Name):
            scope = self._scope_of(container)
            made = [each for each in made if isinstance(each, ast.Name) and self._scope_of(each) is scope]
            if any(each.arg == container.id for each in arguments_of(scope)):
                return False
        return bool(made) and all(self._is_new(each) for each in made) and self._hold(container)

    def _is_new(self, target: ast.AST) -> bool:
        """Is a new container assigned here?"""
        above: Any = self.above[target]
        single = isinstance(above, ast.AnnAssign) or (isinstance(above, ast.Assign) and len(above.targets) == 1)
        value = above.value if single else None
        if isinstance(above, ast.Tuple) and isinstance(self.above[above], ast.Assign):
            parts = parts_of(above, self.above[above].value)  # type: ignore[attr-defined]
            value = self.above[above].value.elts[above.elts.index(target)] if parts else None  # type: ignore
        if isinstance(value, ast.Call):
            return self.called(value) in MAKES and not value.args[1:]
        return isinstance(value, (ast.Dict, ast.List, ast.ListComp, ast.DictComp, ast.Set))

    def _hold_each(self, keys: Iterable[Key]) -> None:
        for key in keys:
            if key not in self.held:
                self.held.add(key)
                self.follow(self._uses(*key))

    def _uses(self, scope: Scope | str, name: str) -> Iterator[ast.expr]:
        """Where a variable, an attribute or a function is used."""
        shorts = [short for short, full in self.full_names.items() if full == name]
        for node in chain.from_iterable(self.loads.get(each, []) for each in (name, *shorts)):
            if isinstance(scope, str):
                fits = scope == RESULT or not isinstance(node, ast.Name)
            elif isinstance(node, ast.Name):
                fits = scope in self._around(node) or (isinstance(scope, ast.Module) and node.id in self.imported)
            else:
                fits = isinstance(scope, ast.Module) and last_name(getattr(node, "value", node)) in self.imported
            if fits:
                yield node

    def _around(self, node: ast.AST) -> Iterator[Scope]:
        """The functions that a node stands in, the innermost first, and its module."""
        scope = self.scopes[node]
        while not isinstance(scope, ast.Module):
            yield scope
            scope = self.scopes[scope]
        yield scope

    def _scope_of(self, variable: ast.Name) -> Scope:
        """The function that a variable belongs to, or its module."""
        scope: Scope = self.scopes[variable]
        for scope in self._around(variable):
            shared = (ast.Global, ast.Nonlocal)
            if any(isinstance(each, shared) and variable.id in each.names for each in ast.walk(scope)):
                continue
            if any(each.arg == variable.id for each in arguments_of(scope)) or any(
                self.scopes[each] is scope for each in self.stored.get(variable.id, [])
            ):
                return scope
        return scope

    def _in_class(self, node: ast.AST) -> bool:
        while node in self.above and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node = self.above[node]
            if isinstance(node, ast.ClassDef):
                return True
        return False


def parts_of(target: ast.AST, value: ast.AST) -> list[ast.expr]:
    """The parts of a target, where those of the value go to them one by one; else nothing."""
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple) or len(target.elts) != len(value.elts):
        return []
    return [] if any(isinstance(each, ast.Starred) for each in (*target.elts, *value.elts)) else target.elts


def has_calls(*nodes: ast.AST) -> bool:
    return any(isinstance(each, ast.Call) for node in nodes for each in ast.walk(node))


def arguments_of(scope: Scope) -> list[ast.arg]:
    return [] if isinstance(scope, ast.Module) else [each for each in ast.walk(scope.args) if isinstance(each, ast.arg)]
