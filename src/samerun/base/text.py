"""Text that somebody else wrote, made fit for a terminal: the one place where that is decided.

Names of files and processes, lines of source, values of receipts, traces and checkpoints may hold escape sequences,
which a terminal obeys, or bidirectional marks, by which a line reads as something that it is not.
`escape_and_truncate_for_terminal` stands in every way out: in the errors (`SamerunError`), in what commands print
(`echo_escaped`) and in reports (`report/terminal.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MAX_VALUE_LENGTH = 300
MAX_LINE_LENGTH = 4000
MAX_LINES = 2000


def escape_as_one_line(value: Any, max_length: int = MAX_VALUE_LENGTH) -> str:
    """The value in one line: control characters, which a terminal would obey, are written out; long text is cut."""
    text = value if isinstance(value, str) else repr(value)
    cut = text[:max_length]
    if cut.isprintable():
        return cut + ("..." if len(text) > max_length else "")
    clean = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in cut)
    return clean + ("..." if len(text) > max_length else "")


def escape_and_truncate_for_terminal(text: str) -> str:
    """Escape each line of a text as `escape_as_one_line` does.

    Tabs stay, and so does a carriage return that ends a line. Very long lines and texts are cut.
    """
    if text.isprintable() and len(text) <= MAX_LINE_LENGTH:
        return text
    lines = text.split("\n", MAX_LINES)
    rest = ["..."] if len(lines) > MAX_LINES else []
    ended, last = lines[: min(len(lines) - 1, MAX_LINES)], lines[len(lines) - 1 : MAX_LINES]
    return "\n".join([*map(_escape_line_keeping_trailing_cr, ended), *map(_escape_line_keeping_tabs, last), *rest])


def _escape_line_keeping_trailing_cr(line: str) -> str:
    return f"{_escape_line_keeping_tabs(line[:-1])}\r" if line.endswith("\r") else _escape_line_keeping_tabs(line)


def _escape_line_keeping_tabs(line: str) -> str:
    return "\t".join(escape_as_one_line(part, MAX_LINE_LENGTH) for part in line[: 2 * MAX_LINE_LENGTH].split("\t"))


def echo_escaped(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Print to standard output or standard error, whatever stands in the text."""
    import click

    click.echo(escape_and_truncate_for_terminal(str(text)), err=err, nl=nl)


def did_you_mean_prefix_or_empty(word: str, names: Sequence[str]) -> str:
    """ "Did you mean NAME? ", or "" if none of the names looks like the word."""
    import difflib  # only where something was misspelt

    near = difflib.get_close_matches(word, names, 1, 0.5)
    return f"Did you mean {near[0]}? " if near else ""
