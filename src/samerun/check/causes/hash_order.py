"""`hash(str)` decides an order or a seed."""

from __future__ import annotations

import ast

from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect
from samerun.check.evidence.source import Edit, Source, last_name
from samerun.record.trace import format as f


def find(situation: Situation) -> list[Suspect]:
    if situation.variation != "hash_seed":
        return []
    for clue in situation.clues_of(f.SEED, f.CREATE):
        if not clue.a.unseeded and clue.a.line:
            return [
                Suspect("hash-order", clue.a.file, clue.a.line,
                        (f"{clue.a.name} is seeded at line {clue.a.line} with a value that depends on PYTHONHASHSEED",),
                        0.0, certain=True)
            ]  # fmt: skip
    return []


THROUGH = ("enumerate", "list", "tuple", "iter", "fromiter", "join", "reversed", "zip", "tqdm")
"""Functions that keep the order of what they are given."""


def patch(source: Source) -> list[Edit]:
    """`sorted(...)` around the set that is iterated."""
    edits = []
    for node in ast.walk(source.tree):
        if isinstance(node, (ast.For, ast.comprehension)) and node.iter.lineno == source.line:
            edits += _around(source, node.iter)
    if not edits:
        for call in source.calls(*THROUGH):
            edits += _around(source, call)
            break
    return edits


def _around(source: Source, node: ast.expr) -> list[Edit]:
    if isinstance(node, ast.Call):
        name = last_name(node.func)
        if name in THROUGH:
            return _around(source, node.args[0]) if node.args else []
        if name not in ("set", "frozenset", "union", "intersection", "difference", "symmetric_difference"):
            return []
    elif not isinstance(node, (ast.Name, ast.Attribute, ast.Set, ast.SetComp, ast.BinOp)):
        return []
    return source.wrap(node, "sorted(", ")")


CAUSE = Cause(
    "hash-order",
    find,
    "iterate over sorted(...) of the set; make seeds without hash() (zlib.crc32 or hashlib give fixed numbers)",
    "Python gives hash(str) another seed in every process, and sets are ordered by hash. Class ids, vocabularies"
    " and parameter orders taken from a set therefore change from run to run. PYTHONHASHSEED must be set before"
    " the interpreter starts; setting it inside the program comes too late.",
    patch,
)
