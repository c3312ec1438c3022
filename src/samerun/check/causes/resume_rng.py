"""A generator goes on from elsewhere after a resume. Named by comparing the resumed run with one run through."""

from samerun.check.causes.cause import Cause, nothing

CAUSE = Cause(
    "resume-rng",
    nothing,
    "save the state of every generator with the checkpoint and restore it (samerun.state_dict holds them all)",
    "A checkpoint of model and optimizer alone restarts the random streams: dropout, shuffling and augmentation"
    " then differ from the run that was not interrupted. A DataLoader's own generator has a state of its own.",
)
