"""What finishes first is used first."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect, nearness
from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.trace.run import select_events

TAKEN_IN_ORDER = (
    "as_completed", "imap_unordered", "concurrent.futures.wait", "asyncio.as_completed", "asyncio.wait",
)  # fmt: skip
"""What the pin `in-order` acts on."""


def find(situation: Situation) -> list[Suspect]:
    if situation.variation != "rerun":
        return []
    found = []
    for clue in situation.clues_of(f.COMPLETION):
        if clue.b is not None and clue.a.line and clue.a.direct:
            # Taking the same results in order leaves all else as it was, races of the tasks too: it is tried before
            # those, which go as well where threads run one after the other.
            in_turn = clue.a.name in TAKEN_IN_ORDER
            rank = 1.0 + nearness(situation, clue) * (0.3 if in_turn else 1.0)
            found.append(
                Suspect("async-order", clue.a.file, clue.a.line,
                        (f"{clue.a.name} at line {clue.a.line} gave another item first",),
                        rank, (pins.IN_ORDER if in_turn else pins.SERIAL,))
            )  # fmt: skip
    batches = situation.clues_of(f.BATCH)
    if batches and batches[0].b is not None:
        role = batches[0].role
        both = [
            sorted(e.outputs for e in select_events(runs.traces[role], (f.BATCH,)))
            for runs in (situation.a.traces, situation.b.traces)
        ]
        made = [e for e in situation.host_events if e.kind == f.LOADER and e.line and e.text == "made"]
        loaders = [e for e in made if not e.inputs] or made
        if both[0] == both[1] and loaders:
            found.append(
                Suspect("async-order", loaders[-1].file, loaders[-1].line,
                        ("the DataLoader handed over the same batches in another order",), 0.9, (pins.IN_ORDER,))
            )  # fmt: skip
    return found[:2]


CAUSE = Cause(
    "async-order",
    find,
    "take results in the order in which they were asked for (pool.map, in_order=True, a sequence number)",
    "Queues, as_completed, wait, imap_unordered and DataLoader(in_order=False) hand over what finishes first; asyncio"
    " goes on with the task whose thread or socket is ready first. Which that is depends on the machine's load.",
)
