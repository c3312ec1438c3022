"""The data or the schedule goes on from elsewhere after a resume. Named by comparing a resumed run."""

from samerun.check.causes.cause import Cause, nothing

CAUSE = Cause(
    "resume-position",
    nothing,
    "save the position too: the scheduler's state, the epoch, and how many batches of it were used",
    "After a resume an epoch begins again from its first batch, or a learning-rate schedule from its first step,"
    " unless the checkpoint holds the position and the program goes on from there.",
)
