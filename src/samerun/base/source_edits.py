"""A source file of the user's program: read byte for byte, edited by positions in its syntax tree, shown as a patch.

Nothing here writes to the file.
"""

from __future__ import annotations

import ast
import difflib
import io
import os
import re
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

LARGEST_BYTES = 4 << 20


@dataclass(frozen=True)
class SourceFile:
    """`text`: with the line endings that the file has, without a byte order mark, which stands in `bom`."""

    text: str
    bom: str
    encoding: str

    @property
    def text_with_bom(self) -> str:
        return self.bom + self.text


def read_python_source(file: str) -> SourceFile:
    """Raises OSError, SyntaxError or ValueError for what is not Python source, or larger than a few MiB."""
    if not os.path.isfile(file) or os.path.getsize(file) > LARGEST_BYTES:
        raise ValueError("no source file")
    with open(file, "rb") as stream:
        return decode_python_source(stream.read())


def decode_python_source(raw: bytes) -> SourceFile:
    """Raises SyntaxError or ValueError for bytes that are not in the encoding which the source declares."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
    bom = "\ufeff" if encoding == "utf-8-sig" else ""
    encoding = encoding.removesuffix("-sig")
    whole = raw.decode(encoding)
    if whole.encode(encoding) != raw:
        raise ValueError(f"{encoding} does not give the same bytes back")
    return SourceFile(whole.removeprefix(bom), bom, encoding)


def make_unquoted_patch_path(file: str) -> str:
    """The file as a patch names it: relative to the working directory, or from the root where it lies outside."""
    name = os.path.relpath(file)
    return (os.path.abspath(file) if name.startswith("..") else name).lstrip("/").replace(os.sep, "/")


def make_unified_diff(path_in_patch: str, before: str, after: str) -> str:
    """A unified diff; "" where nothing differs. Lines end with "\\n" alone, as git and patch see them."""
    pieces = difflib.unified_diff(
        _split_at_line_feeds(before),
        _split_at_line_feeds(after),
        _quote_path_for_git(f"a/{path_in_patch}"),
        _quote_path_for_git(f"b/{path_in_patch}"),
    )
    return "".join(one if one.endswith("\n") else one + "\n\\ No newline at end of file\n" for one in pieces)


@dataclass(frozen=True)
class Change:
    """`after` in place of the lines `before`, the first of which is line `at`, from 0."""

    at: int
    before: tuple[str, ...]
    after: tuple[str, ...]


def parse_changes(patch: str) -> list[Change]:
    """What a patch made by `make_unified_diff` changes, without the lines around it."""
    changes: list[Change] = []
    at = 0
    before: list[str] = []
    after: list[str] = []

    def flush() -> None:
        if before or after:
            changes.append(Change(at - len(before), tuple(before), tuple(after)))
            before.clear()
            after.clear()

    for line in _split_at_line_feeds(patch)[2:]:
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


class ChangedText(NamedTuple):
    """A text after changes, and how many of them were left out because an earlier one touches the same lines."""

    text: str
    left_out: int


def try_apply_changes(text: str, changes: list[Change]) -> ChangedText | None:
    """The text with the changes; one that touches the lines of an earlier one is left out.

    None where the text is not the one that the changes were made for.
    """
    lines = _split_at_line_feeds(text)
    done: list[Change] = []
    for change in dict.fromkeys(changes):
        if tuple(lines[change.at : change.at + len(change.before)]) != change.before:
            return None
        if not any(_changes_overlap(change, other) for other in done):
            done.append(change)
    left_out = len(dict.fromkeys(changes)) - len(done)
    ordered = sorted(done, key=lambda one: one.at)
    for change in ordered[::-1]:  # not sorted in reverse: of two insertions at one place the first one stays first
        lines[change.at : change.at + len(change.before)] = change.after
    return ChangedText("".join(lines), left_out)


def _changes_overlap(a: Change, b: Change) -> bool:
    """Two insertions at one place go well together."""
    if not a.before and not b.before:
        return False
    return a.at < b.at + max(len(b.before), 1) and b.at < a.at + max(len(a.before), 1)


def _split_at_line_feeds(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def split_python_lines(text: str) -> list[str]:
    """The lines as Python counts them: form feeds and Unicode's separators end none."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


def _quote_path_for_git(path: str) -> str:
    """A file name as git writes and reads it in a header: quoted, or ended by a tab, where it could be misread."""
    if any(c in '"\\' or ord(c) < 32 or ord(c) == 127 for c in path):
        raw = os.fsencode(path)
        return '"' + "".join(chr(b) if 31 < b < 127 and b not in b'"\\' else f"\\{b:03o}" for b in raw) + '"'
    return f"{path}\t" if " " in path else path


# --- edits by the syntax tree ----------------------------------------------------------------------------------
Position = tuple[int, int]
"""Line from 1, UTF-8 byte in the line."""


@dataclass(frozen=True)
class Edit:
    """Put `text` in place of what stands between two positions."""

    start: Position
    end: Position
    text: str


@dataclass(frozen=True)
class SourceAtLine:
    """`line` is the line of the hazard."""

    text: str
    line: int

    @cached_property
    def utf8_lines(self) -> list[bytes]:
        return [one.encode() for one in split_python_lines(self.text)]

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    def expressions_spanning_line(self) -> Iterator[ast.expr]:
        """The expressions that begin on the line of the hazard, or in its statement if none does; in order."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.expr) and node.lineno <= self.line <= (node.end_lineno or node.lineno):
                yield node

    def calls_spanning_line(self, *function_names: str) -> list[ast.Call]:
        """The calls on that line of functions whose last name is one of `function_names`, from left to right."""
        found = [
            node
            for node in self.expressions_spanning_line()
            if isinstance(node, ast.Call) and last_identifier(node.func) in function_names
        ]
        return sorted(found, key=lambda node: (node.lineno, node.col_offset))

    def find_assigned_values(self, name: ast.Name | ast.Attribute) -> list[ast.expr]:
        """What the file assigns to names written like this one, wherever it does."""
        written = ast.unparse(name)
        assignments = [node for node in ast.walk(self.tree) if isinstance(node, (ast.Assign, ast.AnnAssign))]
        return [
            node.value
            for node in assignments
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if node.value is not None and ast.unparse(target) == written
        ]

    def make_insertion_after_imports(self, statement: str) -> Edit:
        """A statement on a line of its own behind the last import at the top of the file, an import without a gap."""
        last = 0
        for node in self.tree.body:
            docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if isinstance(node, (ast.Import, ast.ImportFrom)) or (docstring and not last):
                last = node.end_lineno or node.lineno
            elif last and not isinstance(node, (ast.Import, ast.ImportFrom)):
                break
        before = "" if statement.startswith("import ") else "\n"
        return Edit((last + 1, 0), (last + 1, 0), f"{before}{statement}\n")


def find_imported_name_of_module(tree: ast.Module, module_name: str) -> str | None:
    """The name under which a whole file knows a module; None if it does not."""
    for alias in (alias for node in tree.body if isinstance(node, ast.Import) for alias in node.names):
        if alias.name == module_name or (alias.name.startswith(f"{module_name}.") and not alias.asname):
            return alias.asname or module_name
    return None


MakeEdits = Callable[[SourceAtLine], list[Edit]]
"""What to change where a cause was found; no edits where it cannot be done mechanically."""


def make_no_edits(source: SourceAtLine) -> list[Edit]:
    return []


def make_wrap_edits(node: ast.expr, before: str, after: str) -> list[Edit]:
    start, end = node_span(node)
    return [Edit(start, start, before), Edit(end, end, after)]


def make_seed_argument_edits(call: ast.Call, seed_expression: str = "0") -> list[Edit]:
    """Give a call that has no seed one: in place of its first argument, or of `seed=`."""
    given = next((k.value for k in call.keywords if k.arg == "seed"), call.args[0] if call.args else None)
    if given is not None:
        return [Edit(*node_span(given), seed_expression)]
    return make_insert_argument_edits(call, f"seed={seed_expression}" if call.keywords else seed_expression)


def make_insert_argument_edits(call: ast.Call, argument: str) -> list[Edit]:
    """One more keyword argument, before the keywords of a call, or behind its last argument."""
    if call.keywords:
        first = call.keywords[0]
        return [Edit((first.lineno, first.col_offset), (first.lineno, first.col_offset), f"{argument}, ")]
    line, column = node_span(call)[1]
    at = node_span(call.args[-1])[1] if call.args else (line, column - 1)
    return [Edit(at, at, f", {argument}" if call.args else argument)]


def make_sorted_listing_edits(call: ast.Call) -> list[Edit]:
    """`sorted(...)` around a listing of a folder; entries of `scandir` by their names."""
    after = ", key=lambda entry: entry.name)" if last_identifier(call.func) == "scandir" else ")"
    return make_wrap_edits(call, "sorted(", after)


ZEROED_CONSTRUCTORS = {"empty": "zeros", "empty_like": "zeros_like", "new_empty": "new_zeros"}


def make_zeroed_constructor_edits(call: ast.Call) -> list[Edit]:
    """`torch.empty` becomes `torch.zeros`."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ZEROED_CONSTRUCTORS:
        return []
    (line, column), name = node_span(call.func)[1], call.func.attr
    return [Edit((line, column - len(name)), (line, column), ZEROED_CONSTRUCTORS[name])]


def make_manual_seed_edits(call: ast.Call) -> list[Edit]:
    """`generator.seed()` becomes `generator.manual_seed(0)`."""
    if call.args or call.keywords:
        return []
    line, column = node_span(call)[1]
    return [Edit((line, column - len("seed()")), (line, column), "manual_seed(0)")]


def last_identifier(node: ast.AST) -> str:
    """`c` of `a.b.c`; "" where an expression has no name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def node_span(node: ast.expr) -> tuple[Position, Position]:
    return (node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)


def make_source_patch(file: str, line: int, make_edits: MakeEdits) -> str | None:
    """A unified diff of a user's file, for `patch -p1`, or None: nothing to change, or the file is not readable.

    `file`: as it is shown, relative to the working directory where possible. Line endings are the file's own.
    """
    try:
        read = read_python_source(file)
        source = SourceAtLine(read.text, line)
        edits = make_edits(source)
        if not edits:
            return None
        changed = apply_edits(source, edits)
        ast.parse(changed)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    return make_unified_diff(make_unquoted_patch_path(file), read.text_with_bom, read.bom + changed) or None


def apply_edits(source: SourceAtLine, edits: list[Edit]) -> str:
    """The text with the edits made, the last first, so that earlier positions stay true."""
    lines = [*source.utf8_lines, b""]
    newline = b"\r\n" if lines[0].endswith(b"\r\n") else b"\n"
    for edit in sorted(edits, key=lambda one: (one.start, one.end), reverse=True):
        (first, left), (last, right) = edit.start, edit.end
        text = edit.text.encode().replace(b"\n", newline)
        lines[first - 1 : last] = [lines[first - 1][:left] + text + lines[last - 1][right:]]
    return b"".join(lines).decode()
