"""The quick way of `OperatorDigests`, in C (`native/watch/step_digests.c`), if it was built and fits this torch.

It digests the results of the usual operator (plain tensors on the CPU, nothing random, no collective), and leaves all
others to the methods in Python. Imports torch.
"""

from __future__ import annotations

import functools

from samerun.record.watching import quick_mode, torch_internals
from samerun.record.watching.collective_results import CollectiveResults
from samerun.record.watching.operator_digests import (
    ExecutedOperator,
    OperatorDifference,
    OperatorDigests,
    _operators_by_id,
)


@functools.cache
def load_quick_digests_class() -> type[OperatorDigests] | None:
    """The class of the quick way; None if there is no library, or it does not know this torch."""
    if quick_mode.load_quick_mode_class() is None:
        return None

    class QuickOperatorDigests(quick_mode._watch.StepDigester, OperatorDigests):  # type: ignore[misc, no-untyped-call]
        def __init__(self, collectives: CollectiveResults | None, is_for_other_process: bool) -> None:
            OperatorDigests.__init__(self, None, collectives, False, is_for_other_process)
            self.attach(
                _operators_by_id, self.lanes.setdefault(0, []), ExecutedOperator, torch_internals.is_on_fake_tensors,
                OperatorDigests.__torch_dispatch__, OperatorDigests._record_results, self._threads > 1,
                not self._is_for_other_process,
            )  # fmt: skip

        __torch_dispatch__ = quick_mode._watch.StepDigester.dispatch

    quick_mode.skip_dispatch_rule_lookup_for(QuickOperatorDigests)
    return QuickOperatorDigests


def make_operator_digests(
    locate: OperatorDifference | None = None,
    collectives: CollectiveResults | None = None,
    digests_inputs: bool = False,
    is_for_other_process: bool = False,
) -> OperatorDigests:
    """Digests of one computation. Lines and inputs are only asked for after a difference: the slow way finds them."""
    quick = None if locate is not None or digests_inputs else load_quick_digests_class()
    if quick is None:
        return OperatorDigests(locate, collectives, digests_inputs, is_for_other_process)
    return quick(collectives, is_for_other_process)  # type: ignore[arg-type]
