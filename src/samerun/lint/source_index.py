"""One source text, indexed for the rules: its nodes by kind, who contains whom, and what a name stands for.

Nothing is imported or executed. The walk is a loop, so that no depth of nesting exhausts the stack.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from samerun.base.seed_edits import SeedEditor
from samerun.base.source_edits import last_identifier, split_python_lines

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
LEAVES = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)

SAME_NAMES = {
    "torch.utils.data.dataset": "torch.utils.data",
    "torch.utils.data.dataloader": "torch.utils.data",
    "torch.utils.data.sampler": "torch.utils.data",
    "torch.utils.data.distributed": "torch.utils.data",
    "torch.random": "torch",
    "torch.cuda.random": "torch.cuda",
    "torch.nn.modules": "torch.nn",
    "torch.nn.parameter": "torch.nn",
    "numpy.random.mtrand": "numpy.random",
    "numpy.random._generator": "numpy.random",
    "jax.numpy": "jax_numpy",
}
"""Modules of which another one exports the same names."""


@dataclass(frozen=True)
class FileInProject:
    """What the files around a text say of it, as far as is known; see `project_seeding`.

    `is_seeded`: whether a program that runs it seeds its generators. `definitions_unused_by_living_code`: its functions
    that nothing mentions. `replaced`: attributes that a file gives another generator, from outside of the class.
    """

    is_seeded: bool = True
    definitions_unused_by_living_code: frozenset[str] = frozenset()
    replaced: frozenset[str] = frozenset()


ALONE = FileInProject()


class SourceIndex:
    """The syntax tree of one text. Raises what `ast.parse` raises.

    `stem`: the file's name, without its suffix. `is_notebook`: whether it is one, which nothing imports.
    """

    def __init__(self, text: str, *, project: FileInProject = ALONE, stem: str = "", is_notebook: bool = False) -> None:
        self.text, self.project, self.stem, self.is_notebook = text, project, stem, is_notebook
        self.tree = ast.parse(text)
        self.parents: dict[ast.AST, ast.AST] = {}
        self.calls: list[ast.Call] = []
        self.functions: list[Function] = []
        self.classes: list[ast.ClassDef] = []
        self.nodes: dict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        self._index()

    def _index(self) -> None:
        """Fill the lists in the order of the source; a stack in place of recursion."""
        parents, nodes = self.parents, self.nodes
        stack: list[ast.AST] = [self.tree]
        while stack:
            node = stack.pop()
            nodes[node.__class__].append(node)
            children: list[ast.AST] = []
            for name in node._fields:
                value = getattr(node, name, None)
                if value.__class__ is list:
                    for item in value:
                        if isinstance(item, ast.AST):
                            parents[item] = node
                            children.append(item)
                elif isinstance(value, ast.AST) and not isinstance(value, LEAVES):
                    parents[value] = node
                    children.append(value)
            children.reverse()
            stack += children
        self.calls = nodes[ast.Call]  # type: ignore[assignment]
        self.classes = nodes[ast.ClassDef]  # type: ignore[assignment]
        self.functions = sorted(
            [*nodes[ast.FunctionDef], *nodes[ast.AsyncFunctionDef]], key=lambda one: one.lineno  # type: ignore
        )  # fmt: skip

    @cached_property
    def lines(self) -> list[str]:
        """The text's lines as `ast` numbers them, the first one at 0."""
        return split_python_lines(self.text)

    # --- who contains whom
    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """From the node's parent to the module."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def enclosing_scope_of(self, node: ast.AST) -> Scope:
        """The function, class, lambda or module in which a node stands; for a definition, the one around it."""
        for one in self.ancestors(node):
            if isinstance(one, SCOPES):
                return one
        return self.tree

    def enclosing_def(self, node: ast.AST) -> Function | None:
        """The nearest function around a node."""
        return next((one for one in self.ancestors(node) if isinstance(one, FUNCTIONS)), None)

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """The nearest class around a node."""
        return next((one for one in self.ancestors(node) if isinstance(one, ast.ClassDef)), None)

    def statement_of(self, node: ast.AST) -> ast.stmt:
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def is_inside(self, node: ast.AST, outer: ast.AST) -> bool:
        return node is outer or any(one is outer for one in self.ancestors(node))

    def is_before_break(self, node: ast.AST, loop: ast.AST) -> bool:
        """Whether a block around a node, inside of a loop, ends with a `break` out of that loop."""
        statement: ast.AST = self.statement_of(node)
        while statement is not loop:
            above = self.parents[statement]
            blocks = (getattr(above, name, None) for name in ("body", "orelse"))
            inside = isinstance(above, (ast.For, ast.AsyncFor, ast.While)) and above is not loop
            if not inside and any(
                isinstance(one, list) and statement in one and isinstance(one[-1], ast.Break) for one in blocks
            ):
                return True
            statement = above
        return False

    def enclosing_tests(self, node: ast.AST) -> Iterator[ast.expr]:
        """The conditions under which a node is evaluated, innermost first, up to the function's head."""
        child = node
        for one in self.ancestors(node):
            if isinstance(one, (ast.If, ast.While, ast.IfExp)) and child is not one.test:
                yield one.test
            elif isinstance(one, FUNCTIONS):
                return
            child = one

    @cached_property
    def seed_editor(self) -> SeedEditor:
        return SeedEditor(self.tree, self.parents)

    # --- what a name stands for
    @cached_property
    def _imports(self) -> dict[ast.AST, dict[str, str]]:
        """For each scope, the names that imports bind there, and the full names they stand for; `` for one of two."""
        found: dict[ast.AST, dict[str, str]] = defaultdict(dict)
        for node in self.nodes[ast.Import]:
            assert isinstance(node, ast.Import)
            names = found[self.enclosing_scope_of(node)]
            for alias in node.names:
                name = alias.asname or alias.name.split(".")[0]
                full = alias.name if alias.asname else name
                names[name] = full if names.get(name, full) == full else ""
        for node in self.nodes[ast.ImportFrom]:
            assert isinstance(node, ast.ImportFrom)
            module = "." * node.level + (node.module or "")
            names = found[self.enclosing_scope_of(node)]
            for alias in node.names:
                name, full = alias.asname or alias.name, f"{module}.{alias.name}"
                names[name] = full if names.get(name, full) == full else ""
        return found

    @cached_property
    def bindings(self) -> dict[ast.AST, dict[str, list[ast.AST]]]:
        """For each scope, the names bound there other than by imports: the statements or nodes that bind them."""
        found: dict[ast.AST, dict[str, list[ast.AST]]] = defaultdict(lambda: defaultdict(list))
        for node in self.nodes[ast.Name]:
            assert isinstance(node, ast.Name)
            if not isinstance(node.ctx, ast.Load):
                found[self.enclosing_scope_of(node)][node.id].append(node)
        for node in (*self.functions, *self.classes):
            found[self.enclosing_scope_of(node)][node.name].append(node)
        for node in self.nodes[ast.arg]:
            assert isinstance(node, ast.arg)
            found[self.enclosing_scope_of(node)][node.arg].append(node)
        for node in self.nodes[ast.ExceptHandler]:
            assert isinstance(node, ast.ExceptHandler)
            if node.name:
                found[self.enclosing_scope_of(node)][node.name].append(node)
        return found

    def binding_scope(self, name: ast.Name) -> Scope | None:
        """The scope that binds a name that is read; None for a builtin or an unknown one."""
        scope: Scope = self.enclosing_scope_of(name)
        inner = True
        while True:
            visible = inner or not isinstance(scope, ast.ClassDef)
            if visible and (name.id in self.bindings[scope] or name.id in self._imports[scope]):
                return scope
            if scope is self.tree:
                return None
            scope, inner = self.enclosing_scope_of(scope), False

    def bindings_of(self, name: ast.Name) -> list[ast.AST]:
        """What binds a name where it is read, other than imports; in the order of the source."""
        scope = self.binding_scope(name)
        return [] if scope is None else self.bindings[scope].get(name.id, [])

    def qualified_name(self, node: ast.AST) -> str:
        """`numpy.random.default_rng` for `np.random.default_rng`, whatever it is imported as; `` if it is not known.

        A builtin is known by its bare name. A name that the text binds itself is followed through one assignment.
        """
        return self._qualified_name(node, 8)

    def _qualified_name(self, node: ast.AST, depth: int) -> str:
        tail: list[str] = []
        while isinstance(node, ast.Attribute):
            tail.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or not depth:
            return ""
        scope = self.binding_scope(node)
        if scope is None:
            head = node.id
        else:
            bound = self.bindings[scope].get(node.id, [])
            imported = self._imports[scope].get(node.id)
            if imported is not None and not bound:
                head = imported
            elif len(bound) == 1 and imported is None and isinstance(bound[0], ast.Name):
                value = self.assigned_value(bound[0])
                head = self._qualified_name(value, depth - 1) if isinstance(value, (ast.Attribute, ast.Name)) else ""
            else:
                return ""
        if not head:
            return ""
        full = ".".join((head, *reversed(tail)))
        module, _, last = full.rpartition(".")
        return f"{SAME_NAMES[module]}.{last}" if module in SAME_NAMES else full

    @cached_property
    def call_names(self) -> dict[ast.Call, str]:
        """The full name of what each call calls, `` where it is not known."""
        return {call: self.qualified_name(call.func) for call in self.calls}

    @cached_property
    def calls_by_name(self) -> dict[str, list[ast.Call]]:
        found: dict[str, list[ast.Call]] = defaultdict(list)
        for call, name in self.call_names.items():
            if name:
                found[name].append(call)
        return found

    @cached_property
    def calls_by_last_name(self) -> dict[str, list[ast.Call]]:
        """By the last part of what is called, known or not: `seed` for `generator.seed()`."""
        found: dict[str, list[ast.Call]] = defaultdict(list)
        for call in self.calls:
            found[last_identifier(call.func)].append(call)
        return found

    def calls_of(self, *names: str) -> list[ast.Call]:
        """The calls of functions with these full names, in the order of the source."""
        found = [call for name in names for call in self.calls_by_name.get(name, ())]
        return sorted(found, key=lambda one: (one.lineno, one.col_offset))

    def assigned_value(self, target: ast.AST) -> ast.expr | None:
        """What an assignment gives a target; None where it is unpacked, or bound in another way."""
        parent = self.parents.get(target)
        if isinstance(parent, ast.Assign) and target in parent.targets:
            return parent.value
        if isinstance(parent, (ast.AnnAssign, ast.NamedExpr)) and target is parent.target:
            return parent.value
        if isinstance(parent, ast.Tuple) and isinstance(parent.ctx, ast.Store):
            whole = self.assigned_value(parent)
            if isinstance(whole, ast.Tuple) and len(whole.elts) == len(parent.elts):
                return whole.elts[parent.elts.index(target)]  # type: ignore[arg-type]
        return None

    def values_assigned_to(self, target: ast.expr) -> Iterator[ast.expr]:
        """What a name, or an attribute of self, is given anywhere in its scope or class."""
        mentions: list[ast.AST] = []
        if isinstance(target, ast.Attribute):
            mentions = [*self.self_attributes(target)]
        elif isinstance(target, ast.Name):
            mentions = self.bindings_of(target)
        for one in mentions:
            value = self.assigned_value(one)
            if value is not None:
                yield value

    # --- functions and classes of this text
    @cached_property
    def attributes(self) -> dict[ast.ClassDef, dict[str, list[ast.Attribute]]]:
        """For each class, every `self.name` in its methods, read or written, in the order of the source."""
        found: dict[ast.ClassDef, dict[str, list[ast.Attribute]]] = defaultdict(lambda: defaultdict(list))
        for node in self.nodes[ast.Attribute]:
            assert isinstance(node, ast.Attribute)
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                owner = self.class_of(node)
                if owner is not None:
                    found[owner][node.attr].append(node)
        return found

    def self_attributes(self, node: ast.Attribute) -> list[ast.Attribute]:
        """Every mention of the attribute of self that `node` is, in its class."""
        owner = self.class_of(node) if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls") else None
        return [] if owner is None else self.attributes[owner][node.attr]

    def called_function(self, call: ast.Call) -> Function | None:
        """The function or method of this text that a call calls; for a class, its `__init__`."""
        func = call.func
        if isinstance(func, ast.Name):
            for bound in self.bindings_of(func):
                if isinstance(bound, FUNCTIONS):
                    return bound
                if isinstance(bound, ast.ClassDef):
                    return self.resolve_method(bound, "__init__")
        elif isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id in ("self", "cls"):
            owner = self.class_of(call)
            return self.resolve_method(owner, func.attr) if owner is not None else None
        return None

    def resolve_method(self, owner: ast.ClassDef, name: str) -> Function | None:
        """A method of a class, or of a base of it in this text."""
        seen: set[ast.ClassDef] = set()
        todo = [owner]
        while todo:
            one = todo.pop(0)
            if one in seen:
                continue
            seen.add(one)
            for node in one.body:
                if isinstance(node, FUNCTIONS) and node.name == name:
                    return node
            for base in one.bases:
                if isinstance(base, ast.Name):
                    todo += [bound for bound in self.bindings_of(base) if isinstance(bound, ast.ClassDef)]
        return None

    @cached_property
    def _calls_of_functions(self) -> dict[ast.AST, list[ast.Call]]:
        found: dict[ast.AST, list[ast.Call]] = defaultdict(list)
        for call in self.calls:
            if isinstance(call.func, (ast.Name, ast.Attribute)):
                function = self.called_function(call)
                if function is not None:
                    found[function].append(call)
        return found

    def calls_of_function(self, function: Function) -> list[ast.Call]:
        """The calls, in this text, of a function or method of it."""
        return self._calls_of_functions[function]

    def transitive_base_names(self, owner: ast.ClassDef) -> set[str]:
        """The full names of all bases, also through classes of this text."""
        names: set[str] = set()
        todo, seen = [owner], set()
        while todo:
            one = todo.pop()
            if one in seen:
                continue
            seen.add(one)
            for base in one.bases:
                names.add(self.qualified_name(base) or last_identifier(base))
                if isinstance(base, ast.Name):
                    todo += [bound for bound in self.bindings_of(base) if isinstance(bound, ast.ClassDef)]
        return names

    @cached_property
    def name_loads(self) -> dict[str, list[ast.Name]]:
        found: dict[str, list[ast.Name]] = defaultdict(list)
        for node in self.nodes[ast.Name]:
            assert isinstance(node, ast.Name)
            if isinstance(node.ctx, ast.Load):
                found[node.id].append(node)
        return found
