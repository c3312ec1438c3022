"""Lines of the program inside compiled regions. Imports torch.

A captured graph runs as generated code: whoever asks the stack for the user's line gets that of the call of the region.
Here each node runs below a frame that stands at the line the node was captured from.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

from torch.fx import GraphModule, Interpreter, Node

from samerun.base.user_code import is_library_or_generated_file

_FRAME = re.compile(r'^\s*File "(.+?)", line (\d+)', re.MULTILINE)


def find_line_of_node(node: Node) -> tuple[str, int]:
    """The innermost line of the program in the stack trace of a node; ("", 0) if there is none."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    return next(((f, int(n)) for f, n in reversed(frames) if not is_library_or_generated_file(f)), ("", 0))


@cache
def make_caller_at(file: str, line: int) -> Callable[..., Any]:
    """A function that calls its first argument with the second one, and whose frame stands at a line."""
    plain: Any = lambda function, argument: function(argument)  # noqa: E731  # one line, so that there is but one
    return FunctionType(plain.__code__.replace(co_filename=file, co_firstlineno=line), {})


class LineInterpreter(Interpreter):
    """Runs a graph node by node, each below a frame at its line."""

    def run_node(self, n: Node) -> Any:
        file, line = find_line_of_node(n)
        return make_caller_at(file, line)(super().run_node, n) if line else super().run_node(n)


def interpret_with_lines(graph_module: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """The backend `eager` of torch.compile, with lines."""
    return LineInterpreter(graph_module).run
