"""How many rows are computed at once decides."""

from samerun.check.causes.cause import Cause, nothing

CAUSE = Cause(
    "batch-size",
    nothing,
    "keep the batch size, and call model.eval() before evaluating: batch statistics then play no part",
    "Kernels choose their order of summation by the size of the batch, so that the same row gives other last bits"
    " in a batch of another size. A batch norm left in training mode makes the result itself depend on the batch.",
)
