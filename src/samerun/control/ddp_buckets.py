"""What DistributedDataParallel does to a training that is taken up again."""

from __future__ import annotations

import sys
import warnings
from typing import Any

FEWEST_RANKS = 3
"""On fewer, a sum over ranks does not depend on where in a buffer a gradient lies."""


class OtherBuckets(UserWarning):
    """A resumed training will not go on bit for bit."""


def warn_of_other_buckets(model: Any) -> None:
    """Warn with OtherBuckets if a model that is about to go on is a DistributedDataParallel that changes its buckets.

    It puts gradients into other buckets after its first step, and on 3 or more ranks the backend's sum depends on
    the place in the bucket. A process that resumes has its first step again: other bits from there on. Silent for
    any other object, on fewer ranks, with `samerun.ddp_comm_hook`, and with `find_unused_parameters=True`, which
    keeps the buckets. Of all ranks, the first warns. Imports nothing.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.parallel.DistributedDataParallel):
        return
    group = model.process_group
    ranks = group.size()
    if ranks < FEWEST_RANKS or group.rank() != 0 or model.find_unused_parameters:
        return
    from samerun.control.ddp_hook import TreeState

    if any(isinstance(state, TreeState) for _, state in getattr(model, "_comm_hooks", ())):
        return
    warnings.warn(
        f"DistributedDataParallel on {ranks} ranks changes its buckets after its first step: what goes on from here "
        "gets other bits than a run that was not interrupted. Call samerun.ddp_comm_hook(model) right after the model "
        "was wrapped, in both runs; or wrap it with find_unused_parameters=True.",
        OtherBuckets,
        stacklevel=4,
    )
