"""A file of the user's program, to be read and changed by the positions of its syntax tree. Never writes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from samerun.check.evidence.source_file import as_patch, lines_of_python, read_source, shown_name


@dataclass(frozen=True)
class Edit:
    """Put `text` in place of what stands between two positions, each (line from 1, UTF-8 byte in the line)."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str


@dataclass(frozen=True)
class Source:
    """`line` is the line of the hazard."""

    text: str
    line: int

    @cached_property
    def lines(self) -> list[bytes]:
        return [one.encode() for one in lines_of_python(self.text)]

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    def at_line(self) -> Iterator[ast.expr]:
        """The expressions that begin on the line of the hazard, or in its statement if none does; in order."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.expr) and node.lineno <= self.line <= (node.end_lineno or node.lineno):
                yield node

    def calls(self, *names: str) -> list[ast.Call]:
        """The calls on that line of functions whose last name is one of `names`, from left to right."""
        found = [node for node in self.at_line() if isinstance(node, ast.Call) and last_name(node.func) in names]
        return sorted(found, key=lambda node: (node.lineno, node.col_offset))

    def imported_as(self, module: str) -> str | None:
        """The name under which the whole file knows a module; None if it does not."""
        for node in self.tree.body:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name == module:
                        return alias.asname or alias.name
        return None

    def after_imports(self, statement: str) -> Edit:
        """A statement on a line of its own behind the last import at the top of the file."""
        last = 0
        for node in self.tree.body:
            docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if isinstance(node, (ast.Import, ast.ImportFrom)) or (docstring and not last):
                last = node.end_lineno or node.lineno
            elif last and not isinstance(node, (ast.Import, ast.ImportFrom)):
                break
        return Edit((last + 1, 0), (last + 1, 0), f"\n{statement}\n")

    def wrap(self, node: ast.expr, before: str, after: str) -> list[Edit]:
        start, end = span(node)
        return [Edit(start, start, before), Edit(end, end, after)]

    def seed_call(self, call: ast.Call, seed: str = "0") -> list[Edit]:
        """Give a call that has no seed one: in place of its first argument, or of `seed=`."""
        given = next((k.value for k in call.keywords if k.arg == "seed"), call.args[0] if call.args else None)
        if given is not None:
            return [Edit(*span(given), seed)]
        end = span(call)[1]
        at = (end[0], end[1] - 1)
        return [Edit(at, at, f", seed={seed}" if call.keywords else seed)]


Patch = Callable[[Source], list[Edit]]
"""What to change where a cause was found; no edits where it cannot be done mechanically."""


def no_patch(source: Source) -> list[Edit]:
    return []


SEEDING = ("seed", "manual_seed", "manual_seed_all", "seed_everything", "set_seed", "default_rng", "Random",
           "RandomState", "SeedSequence")  # fmt: skip


def fixed_seed(source: Source) -> list[Edit]:
    """0 in place of the argument of a seeding call on the line, or of what a variable named like a seed gets."""
    for call in source.calls(*SEEDING):
        if call.args or any(keyword.arg == "seed" for keyword in call.keywords):
            return source.seed_call(call)
    for node in ast.walk(source.tree):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None or node.lineno != source.line:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if all("seed" in last_name(target).lower() for target in targets):
            return [Edit(*span(node.value), "0")]
    return []


def last_name(node: ast.AST) -> str:
    """`c` of `a.b.c`; "" where an expression has no name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def span(node: ast.expr) -> tuple[tuple[int, int], tuple[int, int]]:
    return (node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)


def diff(file: str, line: int, patch: Patch) -> str | None:
    """A unified diff of a user's file, for `patch -p1`, or None: nothing to change, or the file is not readable.

    `file`: as it is shown, relative to the working directory where possible. Line endings are the file's own.
    """
    try:
        read = read_source(file)
        source = Source(read.text, line)
        edits = patch(source)
        if not edits:
            return None
        changed = applied(source, edits)
        ast.parse(changed)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    return as_patch(shown_name(file), read.whole, read.bom + changed) or None


def applied(source: Source, edits: list[Edit]) -> str:
    """The text with the edits made, the last first, so that earlier positions stay true."""
    lines = [*source.lines, b""]
    newline = b"\r\n" if lines[0].endswith(b"\r\n") else b"\n"
    for edit in sorted(edits, key=lambda one: (one.start, one.end), reverse=True):
        (first, left), (last, right) = edit.start, edit.end
        text = edit.text.encode().replace(b"\n", newline)
        lines[first - 1 : last] = [lines[first - 1][:left] + text + lines[last - 1][right:]]
    return b"".join(lines).decode()
