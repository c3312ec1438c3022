"""What collectives gave in one computation of a step, so that another rank can compute it again alone.

Imports torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from samerun.record.digests import digest as d
from samerun.record.digests import torch_guards
from samerun.record.watching.collectives import find_process_group
from samerun.record.watching.watched_operator import WatchedOperator, flatten_to_tensors_and_stable_values

SAME_ON_ALL_RANKS = ("allreduce", "all_reduce", "broadcast", "allgather", "all_gather")
"""Parts of the names of collectives that give every rank of the group the same values."""
MESSAGES = ("send", "recv")
NO_COLLECTIVES = ("_wrap_tensor_autograd", "check_for_nan")
"""Operators of their name spaces that move nothing between ranks."""


class CollectiveResult(NamedTuple):
    """What one collective gave this rank. `is_shared`: every rank of the program got the same, if all went well."""

    name: str
    tensors: list[Any]
    is_shared: bool


class CollectiveResults:
    """Calls collectives and keeps their results; or, with `replayed`, gives kept results and calls nobody.

    `messages`: name of an operator that talks to one other rank, which cannot be waited for here; "" if there was none.
    """

    def __init__(self, replayed: list[CollectiveResult] | None = None) -> None:
        self.kept: list[CollectiveResult] = []
        self.messages = ""
        self._replayed = replayed
        self._reductions: list[tuple[int, WatchedOperator, Any, Any]] = []
        """Number of a result, the operator that reduced over ranks, and what it was given."""

    def bind(self, operator: WatchedOperator) -> Callable[..., Any]:
        """The function to be called in the place of the operator."""
        if operator.name.split(".")[1] in NO_COLLECTIVES:
            return operator.func  # type: ignore[no-any-return]
        call = self._call_and_keep if self._replayed is None else self._replay
        return lambda *args, **kwargs: call(operator, args, kwargs)

    def keep_or_replace_rank(self, operator: WatchedOperator, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of an operator with the rank that it was given in the computation that is replayed."""
        at = operator.rank_argument
        replayed = self._find_replayed(operator)
        if replayed is not None:
            args = (*args[:at], int(replayed.tensors[0]), *args[at + 1 :])
        self.kept.append(CollectiveResult(operator.name, [torch.tensor(args[at])], False))
        return args

    def _find_replayed(self, operator: WatchedOperator) -> CollectiveResult | None:
        """What is kept of the call that comes now; None where nothing is replayed, or another operator is called."""
        at = len(self.kept)
        kept = self._replayed[at] if self._replayed is not None and at < len(self._replayed) else None
        return kept if kept is not None and kept.name == operator.name else None

    def summarize(self) -> list[tuple[str, bytes, bool]]:
        """Of each result its name, its digest, and whether every rank must have got it."""
        return [(result.name, b"".join(map(d.digest, result.tensors)), result.is_shared) for result in self.kept]

    def repeat_reductions(self) -> list[str]:
        """Reduce over ranks once more what was reduced; the names of those with another result this time.

        All ranks call it, after computations with the same collectives.
        """
        changed = []
        with torch_guards.HiddenFromProgram():
            for at, operator, args, kwargs in self._reductions:
                out = operator.func(*args, **kwargs)
                _wait(out)
                kept = self.kept[at]
                again = map(
                    d.digest, operator.flatten_written_arguments(args, kwargs) or _flatten_returned_tensors(out)
                )
                if list(again) != list(map(d.digest, kept.tensors)):
                    changed.append(kept.name)
        return changed

    def _call_and_keep(self, operator: WatchedOperator, args: Any, kwargs: Any) -> Any:
        if "reduce" in operator.name:
            with torch_guards.HiddenFromProgram():
                self._reductions.append((len(self.kept), operator, _clone_tensors_in_lists_and_tuples(args), kwargs))
        out = operator.func(*args, **kwargs)
        if any(name in operator.name for name in MESSAGES):
            self.messages = operator.name
            return out
        _wait(out)
        written = operator.flatten_written_arguments(args, kwargs)
        with torch_guards.HiddenFromProgram():
            tensors = [tensor.detach().clone() for tensor in written or _flatten_returned_tensors(out)]
        is_shared = any(name in operator.name for name in SAME_ON_ALL_RANKS) and _has_group_of_all_ranks(args)
        self.kept.append(CollectiveResult(operator.name, tensors, is_shared))
        # gloo's handle copies its result, by an operator, whenever it is waited for; a replay has no such handle.
        return _make_return_value_by_schema(operator, args, written, tensors) if written else out

    def _replay(self, operator: WatchedOperator, args: Any, kwargs: Any) -> Any:
        """Put the kept result where the collective would have put it. If there is none, leave what is there."""
        kept = self._find_replayed(operator)
        values = kept.tensors if kept is not None else []
        written = operator.flatten_written_arguments(args, kwargs)
        if [tensor.shape for tensor in written] == [tensor.shape for tensor in values]:
            with torch_guards.HiddenFromProgram():
                for tensor, value in zip(written, values, strict=True):
                    tensor.detach().copy_(value)
        self.kept.append(CollectiveResult(operator.name, [], False))
        return _make_return_value_by_schema(operator, args, written, values)


def _clone_tensors_in_lists_and_tuples(value: Any) -> Any:
    """Arguments with copies of their tensors, in lists too."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return type(value)(map(_clone_tensors_in_lists_and_tuples, value)) if isinstance(value, (list, tuple)) else value


def _wait(out: Any) -> None:
    """Wait for a collective: by its handle, or by the tensors of a functional one."""
    for value in out if isinstance(out, (tuple, list)) else (out,):
        if isinstance(value, torch.ScriptObject):
            work: Any = torch._C._distributed_c10d.Work.unbox(value)
            work.wait()
        elif isinstance(value, torch.Tensor):
            torch.ops._c10d_functional.wait_tensor(value)


def _flatten_returned_tensors(out: Any) -> list[Any]:
    """The tensors that a collective returned."""
    returned: list[Any] = []
    flatten_to_tensors_and_stable_values((out,), torch.Tensor, returned, [])
    return returned


def _has_group_of_all_ranks(args: Any) -> bool:
    """Whether all ranks of the program take part in a collective with these arguments."""
    group = find_process_group(args)
    return group is not None and bool(group.size() == torch.distributed.get_world_size())


def _make_return_value_by_schema(operator: WatchedOperator, args: Any, written: list[Any], values: list[Any]) -> Any:
    """What a collective returns, by its schema: a handle of something that is over, its tensors, or new ones."""
    made: list[Any] = []
    for result in operator.func._schema.returns:
        kind = str(result.type)
        if "Work" in kind:
            done: Any = torch.futures.Future()
            done.set_result(written)
            made.append(torch._C._distributed_c10d._create_work_from_future(done).boxed())  # type: ignore[attr-defined]
        elif written:
            made.append(args[0])
        else:
            copies = [value.clone() for value in values]
            made.append(copies[0] if kind == "Tensor" and copies else copies)
    return made[0] if len(made) == 1 else tuple(made) if made else None
