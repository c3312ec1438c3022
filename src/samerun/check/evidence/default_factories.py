"""What fields of dataclasses make or read: the generated `__init__` stands in no file, and only its caller shows."""

from __future__ import annotations

import ast
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from samerun.base.source_edits import last_identifier
from samerun.check.evidence.clock_uses import CLOCK_FUNCTIONS
from samerun.check.evidence.line_search import list_names_read, parse_source_or_empty, read_statement_source_or_empty
from samerun.check.evidence.situation import Suspect

FACTORY_ARGUMENTS = ("default_factory", "factory")
GENERATOR_TYPES = frozenset((
    "default_rng", "RandomState", "SeedSequence", "PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64", "Random",
))  # fmt: skip
READ_BY_KIND = {
    "time": frozenset(CLOCK_FUNCTIONS),
    "os-entropy": frozenset(("uuid1", "uuid4", "getpid", "getppid", "token_hex", "token_bytes", "mkdtemp", "mktemp")),
}
"""Functions that read a source; other kinds are of generators."""


class ReadingField(NamedTuple):
    """A field of a class whose factory makes a generator without a seed, or reads a clock or the system's entropy."""

    file: str
    line: int
    class_name: str


def move_to_default_factory_if_any(suspect: Suspect, files: Iterable[str]) -> Suspect:
    """The suspect at the field whose factory makes or reads it, if its line only makes an object of that class.

    Pins stay at the line that was tested, where the object is made: of several fields none is named, but all are told.
    """
    functions = READ_BY_KIND.get(suspect.kind, GENERATOR_TYPES)
    names = list_names_read(read_statement_source_or_empty(suspect.file, suspect.line))
    if names & functions:
        return suspect
    found = sorted(list_with_imported_files({*files, suspect.file}))
    fields = [field for file in found for field in list_reading_fields(file, functions)]
    made = list_classes_made_with(names, found)
    named = [field for field in fields if field.class_name in made]
    if not named:
        return suspect
    places = ", ".join(f"{os.path.basename(field.file)}:{field.line}" for field in named)
    why = f"the object made at line {suspect.line} takes it from the factory of a field: {places}"
    if len(named) > 1:
        return replace(suspect, evidence=(*suspect.evidence, why), certain=False)
    return replace(suspect, file=named[0].file, line=named[0].line, evidence=(*suspect.evidence, why))


def list_with_imported_files(files: Collection[str]) -> set[str]:
    """The files, and those that they import from beside themselves: a module of fields computes nothing."""
    found: set[str] = set()
    unread = set(files)
    folders = {os.path.dirname(file) for file in files}
    while unread:
        file = unread.pop()
        found.add(file)
        names = [
            name
            for node in ast.walk(parse_source_or_empty(file))
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for name in (
                [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
            )
        ]
        paths = (
            os.path.join(folder, *name.split(".")) + end
            for folder in {*folders, os.path.dirname(file)}
            for name in names
            for end in (".py", f"{os.sep}__init__.py")
        )
        unread |= {path for path in paths if path not in found and os.path.isfile(path)}
    return found


def list_classes_made_with(names: Collection[str], files: Iterable[str]) -> set[str]:
    """Names of these, and of the classes that their bodies and bases name: a field may make an object with fields."""
    mentioned = {
        node.name: {last_identifier(each) for each in ast.walk(node) if isinstance(each, (ast.Name, ast.Attribute))}
        for file in files
        for node in ast.walk(parse_source_or_empty(file))
        if isinstance(node, ast.ClassDef)
    }
    found: set[str] = set()
    unread = set(names) & mentioned.keys()
    while unread:
        name = unread.pop()
        found.add(name)
        unread |= (mentioned[name] & mentioned.keys()) - found
    return found


def list_reading_fields(file: str, functions: Collection[str]) -> Iterator[ReadingField]:
    for owner in ast.walk(parse_source_or_empty(file)):
        if not isinstance(owner, ast.ClassDef):
            continue
        for node in owner.body:
            value = node.value if isinstance(node, (ast.AnnAssign, ast.Assign)) else None
            for keyword in value.keywords if isinstance(value, ast.Call) else ():
                if keyword.arg in FACTORY_ARGUMENTS and makes_or_reads(keyword.value, functions):
                    yield ReadingField(file, keyword.value.lineno, owner.name)


def makes_or_reads(factory: ast.expr, functions: Collection[str]) -> bool:
    """Whether a factory is one of the functions, or a lambda that calls one without arguments."""
    if isinstance(factory, ast.Lambda):
        made = factory.body
        return isinstance(made, ast.Call) and not (made.args or made.keywords) and makes_or_reads(made.func, functions)
    return last_identifier(factory) in functions
