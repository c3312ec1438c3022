"""An operator gave other bits for the same inputs."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect
from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.watching.watched_operator import may_add_in_order_of_arrival


def find_nondeterministic_operator_suspects(situation: Situation) -> list[Suspect]:
    difference = situation.difference
    event = difference.a
    if difference.what != "outputs" or event is None or event.kind != f.OPERATOR:
        return []
    # One without inputs writes over what it is given: what differs is the tensor's shape, not the computation.
    # Of memory that nothing wrote, or a collective fills, the inputs are not compared.
    if event.flags & (f.UNINITIALISED | f.FOREIGN_WRITE | f.NO_INPUTS | f.INEXACT):
        return []
    why = (f"{event.name} got the same inputs in both runs and gave other bits",)
    if situation.variation == "rerun":
        tested = (pins.DETERMINISTIC, pins.THREADS)
        return [Suspect("nondeterministic-operator", event.file, event.line, why, 0.7, tested)]
    if may_add_in_order_of_arrival(event.name):  # runs without the variation may have agreed by chance: no certainty
        return [Suspect("nondeterministic-operator", event.file, event.line, why, 0.0)]
    return []


NONDETERMINISTIC_OPERATOR = Cause(
    "nondeterministic-operator",
    find_nondeterministic_operator_suspects,
    "call torch.use_deterministic_algorithms(True), or replace the operator by one with a fixed order of summation",
    "Some operators add contributions in the order in which threads arrive: indexing with repeated indices and"
    " its gradient, scatter_add, index_add. The sum's last bits depend on that order.",
)
