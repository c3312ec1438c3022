"""A region that torch.compile has compiled counts as one operator: all of it is executed again."""

from __future__ import annotations

from typing import Any

import torch

from samerun.record.digests import digest as d
from samerun.record.trace import format as f
from samerun.record.watching.double import execution
from samerun.record.watching.double import finding as found
from samerun.record.watching.double.call import digests, ordinary, tensors_in
from samerun.record.watching.double.copies import copied, substituted
from samerun.record.watching.double.doubling import Doubling
from samerun.record.watching.double.finding import Finding
from samerun.record.watching.thread_state import ThreadState

NAME = "compiled graph"


class Region:
    """One call of a compiled region. `inputs` is the list that it is given, which the call may empty."""

    def __init__(self, doubling: Doubling, state: ThreadState, inputs: Any) -> None:
        self.doubling, self.state = doubling, state
        self.inputs = list(inputs)
        self.given = [item for item in self.inputs if isinstance(item, torch.Tensor)]
        self.copies: dict[int, Any] | None = None
        self.draws = torch.get_rng_state()
        if any(not ordinary(tensor) or not tensor.is_cpu for tensor in self.given):
            doubling.unseen("compiled regions that do not run on the CPU alone")
        elif not doubling.alone():
            doubling.unseen("compiled regions while other threads run")
        else:
            self.copies = copied(self.given)
        for tensor in filter(d.is_readable, self.given):  # it writes where no operator is seen
            doubling.twins.drop(tensor.untyped_storage())

    def compare(self, compiled: Any, out: Any) -> None:
        """After the program's own execution: once more, with the copies."""
        doubling, state = self.doubling, self.state
        for tensor in filter(d.is_readable, self.given):
            doubling.looks.forget(tensor)
        if self.copies is None:
            return
        firsts = [*self.given, *tensors_in(out)]
        values = digests(firsts)
        again = substituted(self.inputs, self.copies)
        copies = [self.copies[id(tensor)] for tensor in self.given]
        now = torch.get_rng_state()
        torch.set_rng_state(self.draws)
        try:
            with execution.fresh_memory(execution.OTHER), execution.quiet():
                other = compiled.current_callable(again)
        except Exception:
            doubling.unseen("compiled regions, which failed when executed again")
            return
        finally:
            torch.set_rng_state(now)
        seconds = [*copies, *tensors_in(other)]
        for tensor, value, second in zip(firsts, values, seconds, strict=True):
            if d.digest(second) != value:
                flags, place = state.mode._phase_and_place(state, [])
                pair = (tensor, second) if d.is_readable(tensor) else ()
                finding = Finding(found.KERNEL, runs=2, different=1)
                doubling.findings.add(finding, NAME, place, flags & f.PHASE_MASK, pair)
                return
