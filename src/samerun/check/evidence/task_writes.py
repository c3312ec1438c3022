"""Where functions that run in threads or processes of the program write to what others see, read off the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from samerun.base.source_edits import last_identifier
from samerun.base.user_code import is_library_or_generated_file
from samerun.check.evidence.line_search import list_names_read, parse_source_or_empty, read_statement_source_or_empty

TASK_STARTERS = frozenset((
    "submit", "Thread", "Process", "Timer", "map", "starmap", "imap", "imap_unordered", "apply_async", "map_async",
    "starmap_async", "start_new_thread", "to_thread", "run_in_executor", "create_task", "ensure_future", "gather",
    "call_soon_threadsafe", "add_done_callback", "spawn", "start_processes",
))  # fmt: skip
"""Functions and methods that are handed what is to run beside the caller."""
TASK_CLASSES = ("Thread", "Process", "Timer")
MUTATING_METHODS = frozenset((
    "append", "appendleft", "extend", "insert", "add", "update", "setdefault", "put", "put_nowait", "push", "pop",
    "popleft", "remove", "write", "send", "set", "train", "eval", "load_state_dict", "requires_grad_", "copy_", "add_",
    "mul_", "zero_",
))  # fmt: skip
Function = ast.FunctionDef | ast.AsyncFunctionDef


class TaskWrite(NamedTuple):
    """A line that writes to what other threads see. `container`: the name of what is written to."""

    file: str
    line: int
    container: str


def list_task_writes(files: Iterable[str]) -> list[TaskWrite]:
    """Every write to something shared in a function that the program hands to a thread, a process or a pool."""
    trees = {file: parse_source_or_empty(file) for file in sorted(files) if not is_library_or_generated_file(file)}
    functions = [
        (file, node) for file, tree in trees.items() for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]  # fmt: skip
    started = {name for tree in trees.values() for name in iterate_names_passed_to_task_starters(tree)}
    owners = {id(method) for tree in trees.values() for method in list_run_methods(tree)}
    reached: list[tuple[str, Function]] = []
    while True:  # what a task calls runs beside the others as well
        more = [f for f in functions if (f[1].name in started or id(f[1]) in owners) and f not in reached]
        if not more:
            found = (list_shared_writes(file, function, id(function) in owners) for file, function in reached)
            return sorted(write for writes in found for write in writes)
        reached += more
        started |= {
            last_identifier(node.func)
            for _, function in more for node in ast.walk(function) if isinstance(node, ast.Call)
        }  # fmt: skip


def iterate_names_passed_to_task_starters(tree: ast.Module) -> Iterator[str]:
    """Names that are handed to what starts threads, processes and tasks; more than functions are among them."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or last_identifier(call.func) not in TASK_STARTERS:
            continue
        if isinstance(call.func, ast.Name) and call.func.id == "map":  # Python's own runs where it is
            continue
        for given in (*call.args, *(keyword.value for keyword in call.keywords)):
            for node in ast.walk(given):
                if isinstance(node, (ast.Name, ast.Attribute)):
                    yield last_identifier(node)


def list_run_methods(tree: ast.Module) -> Iterator[Function]:
    """The methods `run` of classes of threads and processes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any(last_identifier(base) in TASK_CLASSES for base in node.bases):
            yield from (
                each for each in node.body
                if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) and each.name == "run"
            )  # fmt: skip


def list_shared_writes(file: str, function: Function, is_run_method: bool) -> Iterator[TaskWrite]:
    """Writes in a function to what it did not make itself; attributes of a thread are the thread's own."""
    nodes = list(ast.walk(function))
    outer = {name for node in nodes if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    own = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} - outer
    itself = function.args.args[0].arg if is_run_method and function.args.args else ""
    for node in nodes:
        targets: Sequence[ast.expr] = ()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATING_METHODS:
            targets = [node.func]
        elif isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if isinstance(node, ast.Call) and is_open_for_appending(node):
            opened = node.func.value if isinstance(node.func, ast.Attribute) else node.args[0]
            yield TaskWrite(file, node.lineno, ast.unparse(opened))
        for target in targets:
            if isinstance(target, (ast.Attribute, ast.Subscript)):
                is_attribute = isinstance(target, ast.Attribute) and not isinstance(node, ast.Call)
                of_thread = is_attribute and ast.unparse(target.value) == itself
                if find_root_name(target) not in own and not of_thread:
                    yield TaskWrite(file, target.lineno, last_identifier(target.value))
            elif isinstance(target, ast.Name) and target.id in outer:
                yield TaskWrite(file, target.lineno, target.id)


def is_open_for_appending(call: ast.Call) -> bool:
    """Whether a function or method `open` gets a mode that appends: other tasks may append to that file as well."""
    names_file = isinstance(call.func, ast.Name)
    given = [*call.args[names_file:], *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    modes = [each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    has_file = bool(call.args) or not names_file
    return has_file and last_identifier(call.func) == "open" and any(re.fullmatch("a[bt+]*", mode) for mode in modes)


def find_root_name(node: ast.expr) -> str:
    """The variable that an expression begins with: `self` of `self.rows[0].x`."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def select_task_writes_read_at_lines(writes: Sequence[TaskWrite], file: str, lines: Iterable[int]) -> list[TaskWrite]:
    """Writes to what one of these lines reads, or what belongs to something it reads; all of them if there is none."""
    read = {name for line in lines for name in list_names_read(read_statement_source_or_empty(file, line))}
    return [write for write in writes if write.container in read] or list(writes)
