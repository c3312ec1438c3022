"""Which files are looked at, and which of them a program imports."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from typing import NamedTuple

from samerun.base.files import read_regular_file
from samerun.base.records import LintProblem
from samerun.base.source_edits import LARGEST_BYTES, decode_python_source

SUFFIXES = (".py", ".ipynb")
CONFIGURATIONS = (".yaml", ".yml", ".toml", ".cfg", ".gin", ".sh")
SKIPPED_FOLDERS = {"__pycache__", "node_modules", "site-packages", "venv", "build", "dist"}


class SourceFiles(NamedTuple):
    """What lies under some paths. `configurations`: files that may name functions and classes for programs."""

    files: list[str]
    configurations: list[str]
    problems: list[LintProblem]


def find_source_files(paths: Iterable[str], exclude: Sequence[str]) -> SourceFiles:
    """The Python files and notebooks under some paths, sorted; links to folders are not followed on the way.

    A file that is named is taken whatever it is called.
    """
    files: dict[str, None] = {}
    configurations: dict[str, None] = {}
    problems: list[LintProblem] = []
    for path in paths:
        if os.path.isdir(path):
            for folder, below, names in os.walk(path, onerror=lambda e: problems.append(make_problem(e.filename, e))):
                below[:] = sorted(
                    one for one in below if not _is_skipped(one) and not _is_excluded(f"{folder}/{one}", exclude)
                )
                for name in sorted(names):
                    file = os.path.join(folder, name)
                    if name.endswith(SUFFIXES) and os.path.isfile(file) and not _is_excluded(file, exclude):
                        files.setdefault(os.path.normpath(file))
                    elif name.endswith(CONFIGURATIONS):
                        configurations.setdefault(os.path.normpath(file))
        else:
            files.setdefault(os.path.normpath(path))
    return SourceFiles(list(files), list(configurations), problems)


def _is_skipped(folder_name: str) -> bool:
    return folder_name.startswith(".") or folder_name in SKIPPED_FOLDERS


def _is_excluded(path: str, patterns: Sequence[str]) -> bool:
    shown = os.path.normpath(path).replace(os.sep, "/")
    return any(fnmatch(shown, one) or fnmatch(shown, f"*/{one}") or fnmatch(shown, f"{one}/*") for one in patterns)


def make_problem(file: str, error: BaseException) -> LintProblem:
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return LintProblem(str(file), said or type(error).__name__)


def list_imported_files(file: str, folder: str) -> list[str]:
    """The files under `folder`, or beside `file`, that the imports of a file name; none if it is not Python."""
    try:
        tree = ast.parse(decode_python_source(read_regular_file(file, LARGEST_BYTES)).text)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names += [module, *(f"{module}.{alias.name}".lstrip(".") for alias in node.names)]
    found = []
    for name in dict.fromkeys(one for one in names if one):
        for root in dict.fromkeys((os.path.dirname(file), folder)):
            stem = os.path.join(root, *name.split("."))
            found += [one for one in (f"{stem}.py", os.path.join(stem, "__init__.py")) if os.path.isfile(one)]
    return list(dict.fromkeys(found))


def read_code_cells(raw: bytes) -> list[tuple[int, str]]:
    """Number, from 1, and source of each code cell."""
    notebook = json.loads(raw)
    cells = []
    for number, cell in enumerate(notebook["cells"] if "cells" in notebook else notebook["worksheets"][0]["cells"], 1):
        if cell.get("cell_type") == "code":
            source = cell.get("source", cell.get("input", ""))
            cells.append((number, source if isinstance(source, str) else "".join(source)))
    return cells
