"""`samerun.batch_invariant()`. A face: the work stands in `record/watching/batch_invariance`, which imports torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from samerun.base.errors import SamerunError
from samerun.base.hooks import hide_from_recorder

if TYPE_CHECKING:
    from samerun.record.watching.batch_invariance.report import BatchInvarianceReport


def batch_invariant(
    model: Callable[..., Any], inputs: Any, *, sizes: Sequence[int] | None = None
) -> BatchInvarianceReport:
    """Find out whether what a model computes of a sample depends on the batch around it, and by which operator.

        print(samerun.batch_invariant(model.eval(), x))

    The rows of the inputs are put into batches of other sizes, at other positions, beside other rows and, where a mask
    is among the inputs, with more padding; a sample's results must have the same bits in all of them. Inside
    `samerun.portable()` the portable kernels are examined, outside it torch's own.

    Args:
        model: an nn.Module, a method of one (`model.generate`) or another callable; called without gradients. A module
            is copied: its buffers stay as they are.
        inputs: one tensor, a tuple of arguments or a dict of keywords; the first dimension of the first tensor is the
            batch, and every tensor that begins with the same size has rows too. `attention_mask` (1 for what counts)
            and `src_key_padding_mask`, `key_padding_mask`, `padding_mask` (True for padding) are known by name.
        sizes: the batch sizes to try; 1 to 512, on both sides of every power of two, if it is left out.

    Returns:
        A `BatchInvarianceReport`, which is true if nothing depends on the batch: `experiments`, `dependences` with
        operator, line, module and kind, `to_dict()` for JSON, and a table as `str`.

    Raises:
        SamerunError: for inputs without rows, sizes below 1, a model without a row of results for each row, and one
            that gives another result when it is called again. Whatever the model raises.
    """
    try:
        from samerun.record.watching.batch_invariance import experiments
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise SamerunError("batch_invariant(): torch is not installed.", "pip install torch") from None
    chosen = experiments.SIZES if sizes is None else tuple(sorted(set(sizes)))
    if not chosen or any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in chosen):
        raise SamerunError(f"batch_invariant(sizes={sizes!r}): whole numbers from 1 are wanted.", "sizes=[1, 2, 64]")
    arguments = ((), inputs) if isinstance(inputs, dict) else (inputs if isinstance(inputs, tuple) else (inputs,), {})
    with hide_from_recorder():
        return experiments.examine_batch_invariance(model, arguments, chosen)
