"""Find the line where two runs part before any operator does, from traces of the program's own lines."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from samerun.check.execution.runner import Run
from samerun.record.trace import format as f
from samerun.record.trace.reader import Trace
from samerun.record.trace.run import Event, select_events
from samerun.record.watching.interceptors.files import WRITTEN
from samerun.record.watching.line_follower import NATIVE_DRAW


@dataclass(frozen=True)
class DifferingVariable:
    """A line after which a variable has another value, or at which a function returns another one (`name()`) or is
    called with another one (`name(parameter)`)."""

    file: str
    line: int
    variable: str
    holders: tuple[tuple[str, int, str], ...] = field(default=(), compare=False)
    """(file, line, name) of the variables that hold what differs from this line on: this one and others that the line
    sets. What is returned is held by the variable that takes it."""
    index: int = field(default=0, compare=False)
    """Of the event in the first run's trace."""

    @property
    def first_difference_sentence(self) -> str:
        if self.variable.endswith("()"):
            return f"`{self.variable}` is the first to return another value, at line {self.line}"
        if self.variable.endswith(")"):
            return f"`{self.variable}` is called at line {self.line} with the first value that differs"
        return f"`{self.variable}` is the first variable that differs, after line {self.line}"


class VariableEvent(NamedTuple):
    """A new value of a variable. `called_from`: of a function's result, the line that called the function."""

    name: str
    file: str
    line: int
    value: bytes
    called_from: tuple[str, int] | None

    @property
    def name_in_source(self) -> str:
        """As it stands in the source: of `f(x)`, a parameter, `x`; of `f()`, a result, `f`."""
        function, _, parameter = self.name.removesuffix(")").partition("(")
        return parameter or function

    @property
    def key(self) -> tuple[str, str, int]:
        return self.name, self.file, self.line

    @staticmethod
    def of(event: Event, trace: Trace) -> VariableEvent:
        called_from = trace.location_or_empty(event.aux)[:2] if event.name.endswith("()") else None
        return VariableEvent(event.name, event.file, event.line, event.outputs, called_from)


LOOK_AHEAD = 64
"""So many events further on, one run may have the event that the other has here."""


def find_first_differing_variable(
    a: Run, b: Run, variables_to_skip: Collection[DifferingVariable] = (), role: str = "main"
) -> DifferingVariable | None:
    """The first variable of the user's that differs, and the line that gave it its value.

    `role`: of the process in which the runs differ. `variables_to_skip`: variables that are known to differ, and not
    looked at; with 0 as its line, one of that name anywhere.
    """
    one, other = (find_line_trace_or_main_trace(run, role) for run in (a, b))
    if one is None or other is None:
        return None
    differing = list_differing_variable_events(one, other)
    for at, (event, end_event) in enumerate(differing):
        if not any(DifferingVariable(event.file, n, event.name) in variables_to_skip for n in (event.line, 0)):
            rest = [each for each, _ in differing[at:]]
            taking = [
                follow_result_to_variable(rest[n:])
                for n, each in enumerate(rest) if (each.file, each.line) == (event.file, event.line)
            ]  # fmt: skip
            holders = tuple(dict.fromkeys(one for one in taking if one is not None))
            return DifferingVariable(event.file, event.line, event.name, holders, end_event)
    return None


def find_line_trace_or_main_trace(run: Run, role: str) -> Trace | None:
    """The trace with the lines of a process: of a rank its own, for what the program's processes do the program's."""
    own = run.traces.traces.get(re.sub(r"/(loader|fork|sub).*", "", role))
    if own is not None and any((chunk["kind"] == f.LINE).any() for chunk in own.iter_event_chunks()):
        return own
    return run.traces.main


def list_differing_variable_events(one: Trace, other: Trace) -> list[tuple[VariableEvent, int]]:
    """The events of variables that differ, in order, each with its position in the first trace.

    A variable that keeps its value for once has no event: the next ones are looked at to see which run has one more.
    Nothing counts behind the place where the runs go separate ways.
    """
    events_a, events_b = select_variable_events(one), select_variable_events(other)
    differing: list[tuple[VariableEvent, int]] = []
    i = j = 0
    while i < len(events_a) or j < len(events_b):
        position = events_a[i].index if i < len(events_a) else one.count
        x = VariableEvent.of(events_a[i], one) if i < len(events_a) else None
        y = VariableEvent.of(events_b[j], other) if j < len(events_b) else None
        if x is not None and y is not None and x.key == y.key:
            if x.value != y.value:
                differing.append((x, position))
            i, j = i + 1, j + 1
            continue
        ahead_in_a = index_of_event_or_look_ahead_limit(events_a[i : i + LOOK_AHEAD], y)
        ahead_in_b = index_of_event_or_look_ahead_limit(events_b[j : j + LOOK_AHEAD], x)
        more_in_b = y is not None and ahead_in_b < ahead_in_a
        extra = y if more_in_b or x is None else x
        assert extra is not None
        differing.append((extra, position))
        if ahead_in_a == ahead_in_b == LOOK_AHEAD:
            break
        i, j = (i, j + 1) if more_in_b else (i + 1, j)
    return differing


def find_origin_outside_statement(a: Run, b: Run, role: str, file: str, line: int) -> tuple[str, int, str] | None:
    """(file, line, name): where what differs in a statement comes from, one differing variable or result after another.

    The walk ends at a statement whose names are of nothing that differs: there the difference is made. None if that is
    the given statement.
    """
    one, other = (find_line_trace_or_main_trace(run, role) for run in (a, b))
    if one is None or other is None:
        return None
    found = None
    there = [e.index for e in select_events(one, (f.SEED, f.CREATE, f.OPERATOR)) if (e.file, e.line) == (file, line)]
    end = there[0] if there else one.count
    before = [event for event, position in list_differing_variable_events(one, other) if position < end]
    while before:
        names = list_names_read(read_statement_source_or_empty(file, line))
        at = next((n for n in reversed(range(len(before))) if before[n].name_in_source in names), None)
        if at is None:
            break
        event, before = before[at], before[:at]
        file, line = event.file, event.line
        found = file, line, event.name
    return found


def list_names_read(source: str) -> set[str]:
    """The variables that a statement reads, and the functions it calls, without the objects they belong to."""
    try:
        tree = ast.parse(source.strip())
    except SyntaxError:
        return set()
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return read | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def index_of_event_or_look_ahead_limit(events: list[Event], wanted: VariableEvent | None) -> int:
    """How many events come before one of the wanted variable; `LOOK_AHEAD` if none does."""
    key = wanted.key if wanted is not None else None
    return next((n for n, event in enumerate(events) if (event.name, event.file, event.line) == key), LOOK_AHEAD)


def follow_result_to_variable(differing_events: list[VariableEvent]) -> tuple[str, int, str] | None:
    """(file, line, name) of the variable that takes what a function returns in the first of these events.

    It is set on the line that the function was called from; None if no variable is, as in `show(name())`.
    """
    taking = differing_events[0]
    for event in differing_events[1:]:
        if taking.called_from is None:
            break
        if (event.file, event.line) == taking.called_from:
            taking = event
    return (taking.file, taking.line, taking.name) if taking.called_from is None else None


def find_write_of_differing_file_read(a: Run, b: Run, end_event: int, role: str) -> tuple[str, int, str] | None:
    """(file, line, path): where a run wrote the last file that it then read, and that held something else in the other.

    Only what was read up to event `end_event` counts. What a variable gets from such a file differs since the writing.
    """
    one, other = (find_line_trace_or_main_trace(run, role) for run in (a, b))
    if one is None or other is None:
        return None
    read_by_other = {event.text: event.outputs for event in select_events(other, (f.FILE,))}
    written: dict[str, tuple[str, int, str]] = {}
    found = None
    for event in select_events(one, (f.FILE, f.FACT), end_event):
        if event.kind == f.FACT and event.name == WRITTEN:
            written[event.text] = (event.file, event.line, event.text)
        elif event.kind == f.FILE and read_by_other.get(event.text, event.outputs) != event.outputs:
            found = written.get(event.text, found)
    return found


def select_variable_events(trace: Trace) -> list[Event]:
    """Values of variables, in order. Draws of native code are none: importing a library may make some more."""
    return [event for event in select_events(trace, (f.LINE,)) if event.name != NATIVE_DRAW]


def read_statement_source_or_empty(file: str, line: int) -> str:
    """The source of the innermost statement at a line, "" where it cannot be read."""
    try:
        with open(file, encoding="utf-8") as source:
            text = source.read()
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError):
        return ""
    best: ast.stmt | None = None
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt) or not node.lineno <= line <= (node.end_lineno or node.lineno):
            continue
        if best is None or node.lineno >= best.lineno:
            best = node
    if best is None:
        return ""
    if isinstance(best, (ast.For, ast.While, ast.If, ast.With, ast.FunctionDef, ast.ClassDef)):
        return text.splitlines()[line - 1]
    return ast.get_source_segment(text, best) or ""


def first_loop_line_in_function_or_zero(file: str, function_line: int) -> int:
    """The first line of the first loop in the function that begins at a line; 0 where there is none."""
    for node in ast.walk(parse_source_or_empty(file)):
        if (
            isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and first_line_including_decorators(node) <= function_line <= node.lineno
        ):
            loops = [n.lineno for n in ast.walk(node) if isinstance(n, (ast.For, ast.AsyncFor, ast.While))]
            return min(loops, default=0)
    return 0


def enclosing_loop_line_or_zero(file: str, line: int) -> int:
    """The first line of the innermost loop around a line; 0 where there is none."""
    around = [
        node.lineno for node in ast.walk(parse_source_or_empty(file))
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)) and node.lineno < line <= (node.end_lineno or 0)
    ]  # fmt: skip
    return max(around, default=0)


def data_loop_line_or_same_line(file: str, line: int) -> int:
    """The loop that takes its items at a line, or around it; that of its caller where the function has none."""
    if any(isinstance(n, (ast.For, ast.AsyncFor)) and n.lineno == line for n in ast.walk(parse_source_or_empty(file))):
        return line
    return enclosing_loop_line_or_zero(file, line) or loop_line_around_only_call_or_zero(file, line) or line


def loop_line_around_only_call_or_zero(file: str, line: int) -> int:
    """The loop around the only call of the function that a line stands in; 0 where there is none."""
    tree = parse_source_or_empty(file)
    functions = [
        node for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.lineno < line <= (node.end_lineno or 0)
    ]  # fmt: skip
    if not functions:
        return 0
    name = max(functions, key=lambda node: node.lineno).name
    calls = [
        node.lineno for node in ast.walk(tree)
        if isinstance(node, ast.Call) and (
            (isinstance(node.func, ast.Name) and node.func.id == name)
            or (isinstance(node.func, ast.Attribute) and node.func.attr == name)
        )
    ]  # fmt: skip
    return enclosing_loop_line_or_zero(file, calls[0]) if len(calls) == 1 else 0


def first_line_including_decorators(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """A function's first line, decorators included."""
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


def parse_source_or_empty(file: str) -> ast.Module:
    """The program's source; empty where it cannot be read."""
    try:
        with open(file, encoding="utf-8") as source:
            return ast.parse(source.read())
    except (OSError, ValueError, SyntaxError):
        return ast.Module(body=[], type_ignores=[])


def first_line_using_id_or_zero(file: str) -> int:
    """The first line that calls `id`, or passes it on; 0 where none does."""
    uses = [
        node.lineno for node in ast.walk(parse_source_or_empty(file)) if isinstance(node, ast.Name) and node.id == "id"
    ]
    return min(uses, default=0)


def uses_id_or_set(source: str) -> bool:
    """Does a statement use `id()` or a set, so that object addresses may order something?"""
    try:
        tree = ast.parse(source.strip())
    except SyntaxError:
        return "id(" in source or "set(" in source
    for node in ast.walk(tree):
        if isinstance(node, (ast.Set, ast.SetComp)):
            return True
        if isinstance(node, ast.Name) and node.id in ("id", "set", "frozenset"):
            return True
    return False
