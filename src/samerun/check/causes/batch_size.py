"""How many rows are computed at once decides."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect
from samerun.record.trace import format as f


def find(situation: Situation) -> list[Suspect]:
    event = situation.difference.a
    if situation.variation != "batch_split" or event is None or event.kind != f.ROWS:
        return []
    short = event.name.removeprefix("aten.").split(".")[0].split("#")[0]
    if short == "DataLoader":
        why = f"the samples that the loader hands over at line {event.line} are other ones in smaller batches"
    else:
        why = f"{short} at line {event.line} gives other values for the same samples in smaller batches"
    return [Suspect("batch-size", event.file, event.line, (why,), 0.0)]


CAUSE = Cause(
    "batch-size",
    find,
    "keep the batch size, and call model.eval() before evaluating: batch statistics then play no part",
    "Kernels choose their order of summation by the size of the batch, so that the same row gives other last bits"
    " in a batch of another size. A batch norm left in training mode makes the result itself depend on the batch.",
)
