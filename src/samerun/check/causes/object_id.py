"""Addresses decide an order or a seed: `id()`, sets of objects."""

from samerun.check.causes.cause import Cause
from samerun.check.evidence.line_search import mentions_addresses, read_statement
from samerun.check.evidence.situation import Situation, Suspect
from samerun.record.trace import format as f


def find(situation: Situation) -> list[Suspect]:
    """A generator that is seeded with an address, where nothing but the address layout was varied.

    The value may never be in a variable, so that following lines would name the first use of the generator.
    """
    if situation.variation != "address_layout":
        return []
    for clue in situation.clues_of(f.SEED, f.CREATE):
        if not clue.a.unseeded and mentions_addresses(read_statement(clue.a.file, clue.a.line)):
            why = f"{clue.a.name} is seeded at line {clue.a.line} with a value that depends on an address"
            return [Suspect("object-id", clue.a.file, clue.a.line, (why,), 0, certain=True)]
    return []


CAUSE = Cause(
    "object-id",
    find,
    "order by something that belongs to the object (a name, its position), not by id() or by a set of objects;"
    " give seeds a fixed number",
    "Objects without a __hash__ of their own are hashed by their address, which is another one in every run."
    " Sets of parameters or modules, and sorting by id(), follow it.",
)
