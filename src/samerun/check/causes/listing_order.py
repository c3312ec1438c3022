"""The file system decides an order."""

from __future__ import annotations

import ast

from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect, nearness
from samerun.check.evidence.source import Edit, Source, last_name
from samerun.record.trace import format as f


def find(situation: Situation) -> list[Suspect]:
    found = []
    varied = situation.variation == "listing_order"
    for clue in situation.clues_of(f.LISTING):
        if clue.b is None or clue.a.inputs != clue.b.inputs or not clue.a.line:
            continue
        found.append(
            Suspect("listing-order", clue.a.file, clue.a.line,
                    (f"{clue.a.name}() at line {clue.a.line} gave the same names in another order",),
                    nearness(situation, clue) + (0 if clue.a.direct else 1) + (0 if varied else 4), certain=varied)
        )  # fmt: skip
    return found


NAMES = ("listdir", "glob", "iglob", "rglob", "iterdir")


def patch(source: Source) -> list[Edit]:
    """`sorted(...)` around the listing; entries of `scandir` by their names."""
    within = [inner for call in source.calls("sorted") for inner in ast.walk(call)]
    entered = [item.context_expr for node in ast.walk(source.tree) if isinstance(node, ast.With) for item in node.items]
    edits = []
    for call in source.calls(*NAMES, "scandir"):
        if call in within or call in entered:
            continue
        after = ", key=lambda entry: entry.name)" if last_name(call.func) == "scandir" else ")"
        edits += source.wrap(call, "sorted(", after)
    return edits


CAUSE = Cause(
    "listing-order",
    find,
    "wrap the listing in sorted(...)",
    "os.listdir, os.scandir, glob and Path.iterdir give names in the order of the file system, which changes"
    " with the machine and the history of the folder. A rerun on one machine does not show it.",
    patch,
)
