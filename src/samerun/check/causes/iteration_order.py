"""Orders that depend on hashes, directory listings or addresses."""

from __future__ import annotations

import ast

from samerun.base.source_edits import (
    Edit,
    SourceAtLine,
    find_imported_name_of_module,
    last_identifier,
    make_sorted_listing_edits,
    make_wrap_edits,
    node_span,
)
from samerun.check.causes.cause import Cause
from samerun.check.evidence.line_search import read_statement_source_or_empty, uses_id_or_set
from samerun.check.evidence.situation import Situation, Suspect, relative_event_distance
from samerun.record import pins
from samerun.record.trace import format as f


# `hash(str)` decides an order or a seed.
def find_suspects_seeded_with_hash(situation: Situation) -> list[Suspect]:
    if situation.variation != "hash_seed":
        return []
    return find_explicit_seed_suspects(situation, "hash-order", "with a value that depends on PYTHONHASHSEED")


def find_explicit_seed_suspects(situation: Situation, kind: str, seed_description: str) -> list[Suspect]:
    """The lines that give a generator another seed under the variation, in order: a name or a colour may be drawn from
    one of them, and the data from another."""
    found: dict[tuple[str, int], Suspect] = {}
    for clue in situation.select_clues(f.SEED, f.CREATE):
        event = clue.a
        if not event.is_seeded_by_system and event.line:
            why = f"{event.name} is seeded at line {event.line} {seed_description}"
            pin = f"{pins.SEED}@{event.file}:{event.line}"
            found.setdefault((event.file, event.line), Suspect(kind, event.file, event.line, (why,), 0, (pin,)))
    return list(found.values())


ORDER_PRESERVING = ("enumerate", "list", "tuple", "iter", "fromiter", "join", "reversed", "zip", "tqdm")
"""Functions that keep the order of what they are given."""
SET_FUNCTIONS = ("set", "frozenset", "union", "intersection", "difference", "symmetric_difference")


def wrap_iterated_set_in_sorted(source: SourceAtLine) -> list[Edit]:
    """`sorted(...)` around the set that is iterated.

    A line may iterate a list as well, whose order must stay: of several, only what is known to be a set is wrapped.
    """
    iterated = [
        node.iter
        for node in ast.walk(source.tree)
        if isinstance(node, (ast.For, ast.comprehension)) and node.iter.lineno == source.line
    ]
    candidates = [found for node in iterated if (found := _find_possible_set(node)) is not None]
    if not candidates:
        calls = source.calls_spanning_line(*ORDER_PRESERVING)[:1]
        candidates = [found for node in calls if (found := _find_possible_set(node)) is not None]
    if len(candidates) > 1:
        candidates = [node for node in candidates if _is_known_to_be_set(source, node)]
    return [edit for node in candidates for edit in make_wrap_edits(node, "sorted(", ")")]


def replace_hash_or_sort_set(source: SourceAtLine) -> list[Edit]:
    """zlib.crc32 of the text in place of `hash()`; else `sorted(...)` around the set that is iterated."""
    calls = [call for call in source.calls_spanning_line("hash") if isinstance(call.func, ast.Name)]
    edits = []
    for call in calls:
        if len(call.args) == 1 and not call.keywords and not isinstance(call.args[0], ast.Starred):
            edits.append(Edit(*node_span(call.func), "zlib.crc32"))
            edits += make_wrap_edits(call.args[0], "str(", ").encode()")
    if edits and find_imported_name_of_module(source.tree, "zlib") != "zlib":
        edits.append(source.make_insertion_after_imports("import zlib"))
    return edits if calls else wrap_iterated_set_in_sorted(source)


def _find_possible_set(node: ast.expr) -> ast.expr | None:
    """What is iterated, inside of functions that keep its order; None where it cannot be a set."""
    if isinstance(node, ast.Call):
        name = last_identifier(node.func)
        if name in ORDER_PRESERVING:
            return _find_possible_set(node.args[0]) if node.args else None
        return node if name in SET_FUNCTIONS else None
    return node if isinstance(node, (ast.Name, ast.Attribute, ast.Set, ast.SetComp, ast.BinOp)) else None


def _is_known_to_be_set(source: SourceAtLine, node: ast.expr) -> bool:
    """Whether it makes a set, or is a name that the file gives one."""
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return _makes_set(node)
    return any(map(_makes_set, source.find_assigned_values(node)))


def _makes_set(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _makes_set(node.left) or _makes_set(node.right)
    is_call = isinstance(node, ast.Call) and last_identifier(node.func) in SET_FUNCTIONS
    return is_call or isinstance(node, (ast.Set, ast.SetComp))


HASH_ORDER = Cause(
    "hash-order",
    find_suspects_seeded_with_hash,
    "iterate over sorted(...) of the set; make seeds without hash() (zlib.crc32 or hashlib give fixed numbers)",
    "Python gives hash(str) another seed in every process, and sets are ordered by hash. Class ids, vocabularies"
    " and parameter orders taken from a set therefore change from run to run. PYTHONHASHSEED must be set before"
    " the interpreter starts; setting it inside the program comes too late.",
    replace_hash_or_sort_set,
)


# The file system decides an order.
def find_listing_order_suspects(situation: Situation) -> list[Suspect]:
    found = []
    varied = situation.variation == "listing_order"
    for clue in situation.select_clues(f.LISTING):
        if clue.b is None or clue.a.inputs != clue.b.inputs or not clue.a.line:
            continue
        found.append(
            Suspect("listing-order", clue.a.file, clue.a.line,
                    (f"{clue.a.name}() at line {clue.a.line} gave the same names in another order",),
                    relative_event_distance(situation, clue) + (0 if clue.a.direct else 1) + (0 if varied else 4),
                    certain=varied)
        )  # fmt: skip
    return found


LISTING_FUNCTIONS = ("listdir", "glob", "iglob", "rglob", "iterdir")


def wrap_listings_in_sorted(source: SourceAtLine) -> list[Edit]:
    """`sorted(...)` around the listing; entries of `scandir` by their names."""
    within = [inner for call in source.calls_spanning_line("sorted") for inner in ast.walk(call)]
    entered = [item.context_expr for node in ast.walk(source.tree) if isinstance(node, ast.With) for item in node.items]
    edits = []
    for call in source.calls_spanning_line(*LISTING_FUNCTIONS, "scandir"):
        if call in within or call in entered:
            continue
        edits += make_sorted_listing_edits(call)
    return edits


LISTING_ORDER = Cause(
    "listing-order",
    find_listing_order_suspects,
    "wrap the listing in sorted(...)",
    "os.listdir, os.scandir, glob and Path.iterdir give names in the order of the file system, which changes"
    " with the machine and the history of the folder. A rerun on one machine does not show it.",
    wrap_listings_in_sorted,
)


# Addresses decide an order or a seed: `id()`, sets of objects. Seeds are seen; orders are found by following lines.
def find_suspects_seeded_with_address(situation: Situation) -> list[Suspect]:
    """A generator that is seeded with an address, where nothing but the address layout was varied.

    The value may never be in a variable, so that following lines would name the first use of the generator.
    """
    if situation.variation != "address_layout":
        return []
    found = find_explicit_seed_suspects(situation, "object-id", "with a value that depends on an address")
    return [suspect for suspect in found if uses_id_or_set(read_statement_source_or_empty(suspect.file, suspect.line))]


OBJECT_ID = Cause(
    "object-id",
    find_suspects_seeded_with_address,
    "order by something that belongs to the object (a name, its position), not by id() or by a set of objects;"
    " give seeds a fixed number",
    "Objects without a __hash__ of their own are hashed by their address, which changes from run to run."
    " Sets of parameters or modules, and sorting by id(), follow it.",
)
