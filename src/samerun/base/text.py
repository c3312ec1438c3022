"""Text that somebody else wrote, made fit for a terminal: the one place where that is decided.

Names of files and processes, lines of source, values of receipts, traces and checkpoints may hold escape sequences,
which a terminal obeys, or bidirectional marks, by which a line reads as something that it is not. `fit` stands in every
way out: in the errors (`SamerunError`), in what commands print (`say`) and in reports (`report/console.py`).
"""

from __future__ import annotations

from typing import Any

LONGEST = 300
LONGEST_LINE = 4000
MOST_LINES = 2000


def shown(value: Any, longest: int = LONGEST) -> str:
    """The value in one line: control characters, which a terminal would obey, are written out; long text is cut."""
    text = value if isinstance(value, str) else repr(value)
    cut = text[:longest]
    if cut.isprintable():
        return cut + ("..." if len(text) > longest else "")
    clean = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in cut)
    return clean + ("..." if len(text) > longest else "")


def fit(text: str) -> str:
    """The text line by line, as `shown` has each of them; tabs stay, and so does a carriage return that ends a line.

    Very long lines and texts are cut.
    """
    if text.isprintable() and len(text) <= LONGEST_LINE:
        return text
    lines = text.split("\n", MOST_LINES)
    rest = ["..."] if len(lines) > MOST_LINES else []
    ended, last = lines[: min(len(lines) - 1, MOST_LINES)], lines[len(lines) - 1 : MOST_LINES]
    return "\n".join([*map(_fit_ended_line, ended), *map(_fit_line, last), *rest])


def _fit_ended_line(line: str) -> str:
    return f"{_fit_line(line[:-1])}\r" if line.endswith("\r") else _fit_line(line)


def _fit_line(line: str) -> str:
    return "\t".join(shown(part, LONGEST_LINE) for part in line[: 2 * LONGEST_LINE].split("\t"))


def say(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Print to standard output or standard error, whatever stands in the text."""
    import click

    click.echo(fit(str(text)), err=err, nl=nl)
