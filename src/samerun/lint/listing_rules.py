"""Rules about the order in which the file system lists names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from samerun.base.source_edits import last_identifier, make_sorted_listing_edits
from samerun.lint.element_numbers import assigns_class_or_token_ids_by_name
from samerun.lint.order_exemptions import is_for_evaluation_split, order_use_can_change_result
from samerun.lint.rule import Hit, Rule
from samerun.lint.seeding import has_seeding_call_or_argument
from samerun.lint.source_index import SourceIndex
from samerun.lint.value_flow import CHOSEN, LISTINGS, NUMBERS, PAIRS, POSITIONS, OrderFlow, OrderUse
from samerun.lint.value_origins import find_origins

PATH_LISTINGS = ("iterdir", "glob", "rglob")
SORTED_STORES = re.compile(r"(?:^|_)(?:fs|filesystem|file_system|gfile|s3|gcs|hdfs|bucket|client)$")
"""Names of what lists in the order of names: fsspec, buckets."""


def find_unsorted_listings(index: SourceIndex) -> Iterator[Hit]:
    made = index.calls_by_last_name.get("manual_seed", ())  # of a generator that is handed on
    made = [one for one in made if not index.call_names[one]]
    paired: set[ast.AST] = set()
    for call, name in _list_listings(index):
        use = OrderFlow(index, files=False, slices=False).find_use(call, "seq")
        if use is None or (
            use.effect in (NUMBERS, POSITIONS) and not assigns_class_or_token_ids_by_name(index, use.node)
        ):
            continue
        if use.effect == PAIRS and (use.node in paired or _ignores_one_side(index, use.node)):
            continue
        paired.add(use.node)
        seeded = index.project.is_seeded or not all(_splits_another(index, one, call) for one in made)
        if use.samples and (is_for_evaluation_split(index, call) or not seeded):
            continue
        if order_use_can_change_result(index, use.node) and (has_seeding_call_or_argument(index) or not use.drawn):
            yield _make_listing_hit(index, call, name, use)


def _ignores_one_side(index: SourceIndex, call: ast.AST) -> bool:
    """Whether a loop over pairs uses the elements of one side only; a file that is opened and not read is not used."""
    loop = index.parents.get(call)
    target = loop.target if isinstance(loop, (ast.For, ast.comprehension)) else None
    sides = target.elts if isinstance(target, ast.Tuple) else []
    return any(
        isinstance(one, ast.Name)
        and all(_is_opened_but_never_read(index, load) for load in index.name_loads.get(one.id, ()))
        for one in sides
    )


def _is_opened_but_never_read(index: SourceIndex, node: ast.AST) -> bool:
    for one in index.ancestors(node):
        if isinstance(one, ast.withitem):
            opened = one.optional_vars
            return isinstance(opened, ast.Name) and not index.name_loads.get(opened.id)
        if isinstance(one, ast.stmt):
            return False
    return False


def _splits_another(index: SourceIndex, seeding: ast.Call, listing: ast.Call) -> bool:
    """Whether a generator is seeded to split other samples at random than those of the class around a listing.

    The loaders of these draw from the global generator.
    """
    owner, names = index.class_of(listing), {one.name for one in index.classes}
    for one in index.ancestors(seeding):
        if isinstance(one, ast.Call) and last_identifier(one.func) == "random_split" and one.args:
            made = [last_identifier(origin.func) for origin in find_origins(index, one.args[0])]
            return owner is not None and bool(made) and names.issuperset(made) and owner.name not in made
    return False


def find_listings_whose_order_reaches_draws(index: SourceIndex) -> Iterator[Hit]:
    """Listings whose order counts only beside draws that another file seeds, if any does."""
    for call, name in (
        _list_listings(index) if index.project.is_seeded and not has_seeding_call_or_argument(index) else ()
    ):
        use = OrderFlow(index, files=False, slices=False).find_use(call, "seq")
        if use is None or (use.samples and is_for_evaluation_split(index, call)):
            continue
        if use.drawn and order_use_can_change_result(index, use.node):
            yield _make_listing_hit(index, call, name, use)


def find_written_listings(index: SourceIndex) -> Iterator[Hit]:
    """Listings whose order is that of a file, and has no other effect."""
    for call, name in _list_listings(index):
        use = OrderFlow(index).find_use(call, "seq")
        if use is not None and OrderFlow(index, files=False).find_use(call, "seq") is None:
            yield _make_listing_hit(index, call, name, use)


def find_listing_slices_not_found_as_unsorted(index: SourceIndex) -> Iterator[Hit]:
    """Listings of which a slice takes some elements, and which SR121 does not report."""
    reported = {one.node for one in find_unsorted_listings(index)}
    for call, name in _list_listings(index):
        use = OrderFlow(index, files=False).find_use(call, "seq") if call not in reported else None
        if use is not None and use.effect == CHOSEN and order_use_can_change_result(index, use.node):
            yield _make_listing_hit(index, call, name, use)


def _make_listing_hit(index: SourceIndex, call: ast.Call, name: str, use: OrderUse) -> Hit:
    line = getattr(use.node, "lineno", call.lineno)
    at = "" if line == call.lineno else f" at line {line}"
    edits = () if name == "os.walk" else make_sorted_listing_edits(call)
    return Hit(call, f"the order of {name}() {use.effect}{at}", tuple(edits))


def _list_listings(index: SourceIndex) -> Iterator[tuple[ast.Call, str]]:
    known = index.calls_of(*LISTINGS)
    walks = [one for one in index.calls_of("os.walk") if isinstance(index.parents.get(one), ast.For)]
    for call in [*known, *walks]:
        yield call, index.call_names[call]
    for last in PATH_LISTINGS:
        for call in index.calls_by_last_name.get(last, ()):
            if call not in known and isinstance(call.func, ast.Attribute):
                whole = index.call_names[call]
                store = SORTED_STORES.search(last_identifier(call.func.value).lower())
                if whole.partition(".")[0] in ("glob", "tf", "tensorflow") or store:
                    continue
                yield call, last


SAMPLE_ORDER = Rule(
    "SR120", "sample-order", "listing-order",
    "Finds os.listdir, glob, iterdir and os.walk whose order is that of a dataset's samples, in a file without a seed.",
    "A seeded shuffle of another order is another order: every batch has other samples on another machine.",
    "import os\n\n\nclass Images:\n    def __init__(self):\n        self.names = os.listdir(\"data\")\n\n"
    "    def __getitem__(self, i):\n        return open(self.names[i]).read()\n",
    "import os\n\n\nclass Images:\n    def __init__(self):\n        self.names = sorted(os.listdir(\"data\"))\n\n"
    "    def __getitem__(self, i):\n        return open(self.names[i]).read()\n",
    "wrap the listing in sorted(...)",
    "The program that uses the file seeds nothing, or only evaluates. Off by default.",
    find_listings_whose_order_reaches_draws, default=False, needs_seed=True,
)  # fmt: skip
UNSORTED_LISTING = Rule(
    "SR121", "unsorted-listing", "listing-order",
    "Finds os.listdir, glob, iterdir and os.walk whose order reaches a tensor, a split, a number or a draw.",
    "Names come in the order of the file system, which changes with the machine and the history of the folder.",
    "import os\nimport random\n\nfiles = os.listdir(\"data\")\nrandom.Random(0).shuffle(files)\ntrain = files[:80]\n",
    "import os\nimport random\n\nfiles = sorted(os.listdir(\"data\"))\nrandom.Random(0).shuffle(files)\n"
    "train = files[:80]\n",
    "wrap the listing in sorted(...)",
    "Files whose order does not matter in the end: statistics over all of them.",
    find_unsorted_listings, needs_seed=True,
)  # fmt: skip
WRITTEN_LISTING = Rule(
    "SR129", "written-listing", "listing-order",
    "Finds os.listdir, glob, iterdir and os.walk whose order is that in which a file is written.",
    "Names come in the order of the file system: the file that is written has its lines in another order elsewhere.",
    "import os\n\nwith open(\"all.txt\", \"w\") as out:\n    for name in os.listdir(\"data\"):\n"
    "        out.write(name)\n",
    "import os\n\nwith open(\"all.txt\", \"w\") as out:\n    for name in sorted(os.listdir(\"data\")):\n"
    "        out.write(name)\n",
    "wrap the listing in sorted(...)",
    "Files whose readers do not mind the order: archives, indices, summaries. Off by default.",
    find_written_listings, default=False,
)  # fmt: skip
LISTING_SLICE = Rule(
    "SR135", "listing-slice", "listing-order",
    "Finds os.listdir, glob, iterdir and os.walk of which a slice takes some elements, other than a part of the data.",
    "Names come in the order of the file system: the first hundred are others on another machine.",
    "import glob\n\ncalibration = glob.glob(\"data/*.png\")[:100]\n",
    "import glob\n\ncalibration = sorted(glob.glob(\"data/*.png\"))[:100]\n",
    "wrap the listing in sorted(...)",
    "Half of these are examples for a picture or a report, or limits that take all. Off by default.",
    find_listing_slices_not_found_as_unsorted, default=False,
)  # fmt: skip
