"""Generators that fields of dataclasses make: the generated `__init__` stands in no file, and only its caller shows."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from samerun.base.source_edits import last_identifier
from samerun.check.evidence.line_search import list_names_read, parse_source_or_empty, read_statement_source_or_empty
from samerun.check.evidence.situation import Suspect

FACTORY_ARGUMENTS = ("default_factory", "factory")
GENERATOR_TYPES = frozenset((
    "default_rng", "RandomState", "SeedSequence", "PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64", "Random",
))  # fmt: skip


class UnseededGeneratorField(NamedTuple):
    """A field of a class that makes a generator without a seed."""

    file: str
    line: int
    class_name: str


def move_to_default_factory_if_any(suspect: Suspect, files: Iterable[str]) -> Suspect:
    """The suspect at the field whose factory makes the generator, if its line only makes an object of that class.

    Pins stay at the line that was tested, where the generator is made.
    """
    names = list_names_read(read_statement_source_or_empty(suspect.file, suspect.line))
    if names & GENERATOR_TYPES:
        return suspect
    fields = [field for file in sorted(files) for field in list_unseeded_generator_fields(file)]
    named = [field for field in fields if field.class_name in names] or fields
    if len(named) != 1:
        return suspect
    why = f"the object made at line {suspect.line} takes it from the factory of a field, at line {named[0].line}"
    return replace(suspect, file=named[0].file, line=named[0].line, evidence=(*suspect.evidence, why))


def list_unseeded_generator_fields(file: str) -> Iterator[UnseededGeneratorField]:
    for owner in ast.walk(parse_source_or_empty(file)):
        if not isinstance(owner, ast.ClassDef):
            continue
        for node in owner.body:
            value = node.value if isinstance(node, (ast.AnnAssign, ast.Assign)) else None
            for keyword in value.keywords if isinstance(value, ast.Call) else ():
                if keyword.arg in FACTORY_ARGUMENTS and makes_unseeded_generator(keyword.value):
                    yield UnseededGeneratorField(file, keyword.value.lineno, owner.name)


def makes_unseeded_generator(factory: ast.expr) -> bool:
    """Whether a factory is a type of generators, or a lambda that calls one without arguments."""
    if isinstance(factory, ast.Lambda):
        made = factory.body
        return isinstance(made, ast.Call) and not (made.args or made.keywords) and makes_unseeded_generator(made.func)
    return last_identifier(factory) in GENERATOR_TYPES
