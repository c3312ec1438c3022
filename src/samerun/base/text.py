"""Text from a file that somebody else wrote, made fit for a terminal."""

from __future__ import annotations

from typing import Any

LONGEST = 300


def shown(value: Any, longest: int = LONGEST) -> str:
    """The value in one line: control characters, which a terminal would obey, are written out; long text is cut."""
    text = value if isinstance(value, str) else repr(value)
    cut = text[:longest]
    if cut.isprintable():
        return cut + ("..." if len(text) > longest else "")
    clean = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in cut)
    return clean + ("..." if len(text) > longest else "")
