"""A source file of the user's program byte for byte: its encoding, its line endings, and patches of it as text."""

from __future__ import annotations

import difflib
import io
import os
import re
import tokenize
from dataclasses import dataclass

LARGEST_BYTES = 4 << 20


@dataclass(frozen=True)
class SourceFile:
    """`text`: with the line endings that the file has, without a byte order mark, which stands in `bom`."""

    text: str
    bom: str
    encoding: str

    @property
    def whole(self) -> str:
        return self.bom + self.text


def read_source(file: str) -> SourceFile:
    """Raises OSError, SyntaxError or ValueError for what is not Python source, or larger than a few MiB."""
    if not os.path.isfile(file) or os.path.getsize(file) > LARGEST_BYTES:
        raise ValueError("no source file")
    with open(file, "rb") as stream:
        raw = stream.read()
    encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
    bom = "\ufeff" if encoding == "utf-8-sig" else ""
    encoding = encoding.removesuffix("-sig")
    whole = raw.decode(encoding)
    if whole.encode(encoding) != raw:
        raise ValueError(f"{encoding} does not give the same bytes back")
    return SourceFile(whole.removeprefix(bom), bom, encoding)


def shown_name(file: str) -> str:
    """The file as a patch names it: relative to the working directory, or from the root where it lies outside."""
    name = os.path.relpath(file)
    return (os.path.abspath(file) if name.startswith("..") else name).lstrip("/").replace(os.sep, "/")


def as_patch(name: str, before: str, after: str) -> str:
    """A unified diff; "" where nothing differs. Lines end with "\\n" alone, as git and patch see them."""
    pieces = difflib.unified_diff(_lines(before), _lines(after), _quoted(f"a/{name}"), _quoted(f"b/{name}"))
    return "".join(one if one.endswith("\n") else one + "\n\\ No newline at end of file\n" for one in pieces)


@dataclass(frozen=True)
class Change:
    """`after` in place of the lines `before`, the first of which is line `at`, from 0."""

    at: int
    before: tuple[str, ...]
    after: tuple[str, ...]


def changes_of(patch: str) -> list[Change]:
    """What a patch made by `as_patch` changes, without the lines around it."""
    changes: list[Change] = []
    at = 0
    before: list[str] = []
    after: list[str] = []

    def flush() -> None:
        if before or after:
            changes.append(Change(at - len(before), tuple(before), tuple(after)))
            before.clear()
            after.clear()

    for line in _lines(patch)[2:]:
        head = re.match(r"@@ -(\d+)(?:,(\d+))? ", line)
        if head:
            flush()
            at = int(head[1]) - (head[2] != "0")  # an empty range is named by the line before it
        elif line.startswith("\\"):
            part = after or before
            if part:  # else it speaks of a line that stays
                part[-1] = part[-1].removesuffix("\n")
        elif line.startswith("-"):
            before.append(line[1:])
            at += 1
        elif line.startswith("+"):
            after.append(line[1:])
        else:
            flush()
            at += 1
    flush()
    return changes


def apply_changes(text: str, changes: list[Change]) -> tuple[str, int] | None:
    """(the text with the changes, how many were left out because an earlier one touches the same lines).

    None where the text is not the one that the changes were made for.
    """
    lines = _lines(text)
    done: list[Change] = []
    for change in dict.fromkeys(changes):
        if tuple(lines[change.at : change.at + len(change.before)]) != change.before:
            return None
        if not any(_touch(change, other) for other in done):
            done.append(change)
    left_out = len(dict.fromkeys(changes)) - len(done)
    ordered = sorted(done, key=lambda one: one.at)
    for change in ordered[::-1]:  # not sorted in reverse: of two insertions at one place the first one stays first
        lines[change.at : change.at + len(change.before)] = change.after
    return "".join(lines), left_out


def _touch(a: Change, b: Change) -> bool:
    """Two insertions at one place go well together."""
    if not a.before and not b.before:
        return False
    return a.at < b.at + max(len(b.before), 1) and b.at < a.at + max(len(a.before), 1)


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def lines_of_python(text: str) -> list[str]:
    """The lines as Python counts them: form feeds and Unicode's separators end none."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


def _quoted(name: str) -> str:
    """A file name as git writes and reads it in a header: quoted, or ended by a tab, where it could be misread."""
    if any(c in '"\\' or ord(c) < 32 or ord(c) == 127 for c in name):
        raw = os.fsencode(name)
        return '"' + "".join(chr(b) if 31 < b < 127 and b not in b'"\\' else f"\\{b:03o}" for b in raw) + '"'
    return f"{name}\t" if " " in name else name
