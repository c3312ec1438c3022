"""Which lines read the two ends of a duration: `time.time() - started > 60` and `started = time.time()`.

One end alone means nothing: it is compared with what a clock said at another line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from samerun.base.source_edits import last_identifier
from samerun.check.evidence.clock_uses import CLOCK_FUNCTIONS, ClockReadingTracker, clock_may_affect_results
from samerun.check.evidence.line_search import parse_source_or_empty, read_statement_source_or_empty

ARITHMETIC = (ast.BinOp, ast.UnaryOp, ast.Compare)
Variable = ast.Name | ast.Attribute


def find_duration_starts(file: str, reading_lines: Sequence[int]) -> dict[int, list[int]]:
    """By line that reads a clock, the others whose reading is compared with that one and used no other way.

    Lines without any are left out, and those whose reading decides nothing.
    """
    source = _ReadingsInSource(file)
    starts = {line: source.find_start_lines(line, [other for other in reading_lines if other != line])
              for line in reading_lines}  # fmt: skip
    return {line: found for line, found in starts.items() if found and clock_may_affect_results({file: [line]})}


def is_end_of_duration(file: str, line: int) -> bool:
    """Whether a line reads a clock only to subtract an earlier reading from it, and compares nothing."""
    try:
        tree = ast.parse(read_statement_source_or_empty(file, line).strip())
    except SyntaxError:  # the head of a loop or a condition
        return False
    nodes = list(ast.walk(tree))
    read = [node for node in nodes if isinstance(node, ast.Call) and last_identifier(node.func) in CLOCK_FUNCTIONS]
    ends = [
        node.left for node in nodes
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)
        and isinstance(node.right, (ast.Name, ast.Attribute))
    ]  # fmt: skip
    return len(read) == 1 and read[0] in ends and not any(isinstance(node, ast.Compare) for node in nodes)


class _ReadingsInSource:
    """A file's readings of clocks, and the variables that hold them."""

    def __init__(self, file: str) -> None:
        self.tree = parse_source_or_empty(file)
        self.names = ClockReadingTracker([self.tree])

    def find_start_lines(self, line: int, others: Sequence[int]) -> list[int]:
        """The other lines that assign a reading which is only compared with readings, that at `line` among them."""
        compared = list(self.iter_compared_variables(line))
        return [
            other for other in others
            if (held := [each for each in self.list_assigned_variables(other) if self.is_any_of(each, compared)])
            and all(map(self.is_only_compared_with_readings, held))
        ]  # fmt: skip

    def iter_compared_variables(self, line: int) -> Iterator[Variable]:
        """What the reading at a line, or a variable that it is assigned to, is compared with or subtracted from."""
        variables = self.list_assigned_variables(line)
        for node in ast.walk(self.tree):
            is_here = isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or node.lineno)
            if (is_here and self._is_reading(node)) or (self._is_load(node) and self.is_any_of(node, variables)):
                whole = self._enclosing_arithmetic(node)
                yield from (each for each in ast.walk(whole) if self._is_load(each) and each is not node)  # type: ignore[misc]

    def list_assigned_variables(self, line: int) -> list[ast.AST]:
        """The variables that a statement with a reading on that line assigns to."""
        statements = [
            node for node in ast.walk(self.tree)
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.lineno <= line <= (node.end_lineno or node.lineno)
        ]  # fmt: skip
        return [
            each for node in statements for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            for each in ast.walk(target) if isinstance(getattr(each, "ctx", None), ast.Store)
            and isinstance(each, (ast.Name, ast.Attribute))
        ]  # fmt: skip

    def is_only_compared_with_readings(self, variable: ast.AST) -> bool:
        """Whether each use of a variable meets a clock's reading in the same arithmetic."""
        uses = [
            each for each in self.names.loads.get(last_identifier(variable), []) if self.is_any_of(each, [variable])
        ]
        return all(
            any(self._is_reading(node) or self._is_held_reading(node, variable) for node in ast.walk(whole))
            for whole in map(self._enclosing_arithmetic, uses)
        )

    def is_any_of(self, variable: ast.AST, others: Iterable[ast.AST]) -> bool:
        """Whether a variable is one of these: the same attribute of anything, or the same name in the same scope."""
        return any(
            type(variable) is type(other)
            and last_identifier(variable) == last_identifier(other)
            and (
                not (isinstance(variable, ast.Name) and isinstance(other, ast.Name))
                or self.names.find_scope_of_variable(variable) is self.names.find_scope_of_variable(other)
            )
            for other in others
        )

    def _is_reading(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and self.names.resolve_called_name(node) in CLOCK_FUNCTIONS

    def _is_held_reading(self, node: ast.AST, besides: ast.AST) -> bool:
        """Whether a variable, another than `besides`, is assigned a reading somewhere."""
        if not self._is_load(node) or self.is_any_of(node, [besides]):
            return False
        stored = [each for each in self.names.stored.get(last_identifier(node), []) if self.is_any_of(node, [each])]
        return any(
            self._is_reading(each) for one in stored if isinstance(above := self.names.above.get(one), ast.Assign)
            for each in ast.walk(above.value)
        )  # fmt: skip

    def _is_load(self, node: ast.AST) -> bool:
        return isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load)

    def _enclosing_arithmetic(self, node: ast.AST) -> ast.AST:
        """The largest sum, difference or comparison around an expression; itself where there is none."""
        while isinstance(above := self.names.above.get(node), ARITHMETIC):
            node = above
        return node
