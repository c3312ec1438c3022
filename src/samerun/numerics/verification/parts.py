"""One operator on a part of a batch: are the rows that it gives those that it gives for the whole batch?"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree

from samerun.base.errors import NotPortableError
from samerun.numerics.dispatch import calls
from samerun.numerics.dispatch.calls import NO_KERNEL, Call

SAME, CHANGES, NOT_TRIED = "same", "changes", "not tried"


def shorter_dimension(wide: torch.Tensor, narrow: torch.Tensor) -> int | None:
    """The one dimension in which `narrow` is smaller; None if there is none, or another difference."""
    if wide.ndim != narrow.ndim or wide.dtype != narrow.dtype:
        return None
    differing = [dim for dim in range(wide.ndim) if wide.shape[dim] != narrow.shape[dim]]
    return differing[0] if len(differing) == 1 and wide.shape[differing[0]] > narrow.shape[differing[0]] else None


def _part(wide: Any, narrow: Any) -> Any:
    """As much of `wide` as `narrow` has; the very number or tensor that belongs to the smaller batch otherwise."""
    if not isinstance(wide, torch.Tensor) or not isinstance(narrow, torch.Tensor):
        return narrow
    dim = shorter_dimension(wide, narrow)
    if dim is None:
        return wide if wide.shape == narrow.shape else narrow
    return wide.narrow(dim, 0, narrow.shape[dim])


def on_a_part(call: Call, narrow: Call, inside_portable: bool) -> str:
    """ "same" or "changes"; "not tried" where the results have no part for the smaller batch, as sums over it have
    not; "no portable kernel".
    """
    given, small = (call.args, call.kwargs), (narrow.args, narrow.kwargs)
    leaves, spec = _pytree.tree_flatten(given)
    others = _pytree.tree_leaves(small)
    if len(leaves) != len(others):
        return NOT_TRIED
    args, kwargs = _pytree.tree_unflatten([_part(*pair) for pair in zip(leaves, others, strict=True)], spec)
    try:
        whole = calls.run(call, inside_portable)
        part = calls.run(Call(call.operator, call.line, args, kwargs), inside_portable)
    except NotPortableError:
        return NO_KERNEL
    except Exception:  # the part is no input that the operator takes
        return NOT_TRIED
    found = NOT_TRIED
    for wide, rows in zip(whole, part, strict=True):
        dim = shorter_dimension(wide, rows)
        if dim is None:
            continue
        same = calls.fingerprint([wide.narrow(dim, 0, rows.shape[dim])]) == calls.fingerprint([rows])
        found = CHANGES if not same else found if found == CHANGES else SAME
    return found
