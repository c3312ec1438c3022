"""`samerun.portable_equal()`: which operators of a model change their bits in plain torch, and which portable ones do.

Every operator of one run of the model is run again on the same inputs: with other numbers of threads, with the oldest
instructions that torch has (in a process of its own), and on a part of the batch.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree

from samerun.base.errors import SamerunError
from samerun.base.machine import OLDEST_INSTRUCTIONS
from samerun.numerics.dispatch import calls
from samerun.numerics.dispatch.calls import ERROR, NO_KERNEL, Call
from samerun.numerics.dispatch.known import known
from samerun.numerics.verification.parts import CHANGES, NOT_TRIED, SAME, on_a_part

WHAT = ("threads", "capability", "batch")
STAR = " *"
WHOLE = "whole batch"


@dataclass(frozen=True)
class Operator:
    """One operator of the model, with arguments of one kind.

    `plain`, `portable`: for each of "threads", "capability" and "batch" what the experiment said, "same", "changes"
    or "not tried", or "whole batch" where other rows count by the operator's nature; portable may also be "no portable
    kernel". `known`: with what it was seen to change elsewhere.
    """

    operator: str
    line: str
    times: int
    plain: dict[str, str]
    portable: dict[str, str]
    known: list[str]


@dataclass(frozen=True)
class Equality:
    """What `portable_equal` found; print it for a table."""

    operators: list[Operator]
    notes: list[str]

    @property
    def changing(self) -> list[Operator]:
        """The operators whose bits changed in plain torch."""
        return [one for one in self.operators if CHANGES in one.plain.values()]

    @property
    def portable(self) -> bool:
        """Whether every operator has a portable kernel, none of which changed."""
        return all(set(one.portable.values()) <= {SAME, NOT_TRIED, WHOLE} for one in self.operators)

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("operator", "line", "calls", *WHAT, "portable()")]
        rows += [
            (one.operator.removeprefix("aten."), one.line, str(one.times), *(_shown(one, what) for what in WHAT),
             _worst(one.portable))
            for one in self.operators
            if CHANGES in one.plain.values() or one.known or _worst(one.portable) != SAME
        ]  # fmt: skip
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        rest = len(self.operators) - len(rows) + 1
        head = f"{len(self.changing)} of {len(self.operators)} operators change their bits in plain torch."
        shown = [f"{rest} more give the same bits in plain torch."] if rest else []
        if any(STAR in cell for row in rows for cell in row):
            shown.append("* the same here, but known to change with other inputs or on other machines")
        return "\n".join([head, "", *table, *shown, *self.notes])


def _shown(one: Operator, what: str) -> str:
    if one.plain[what] != CHANGES and what in one.known:
        return one.plain[what] + STAR
    return one.plain[what]


def _worst(found: dict[str, str]) -> str:
    for each in (CHANGES, NO_KERNEL):
        if each in found.values():
            return each
    return SAME


def examined(
    model: Callable[..., Any], inputs: Any, loss: Callable[[Any], torch.Tensor] | None, batch: int | None
) -> Equality:
    """What `samerun.portable_equal` returns and raises."""
    given = inputs if isinstance(inputs, tuple) else (inputs,)
    tensors = [leaf for leaf in _pytree.tree_leaves(given) if isinstance(leaf, torch.Tensor)]
    if not tensors:
        raise SamerunError("portable_equal(inputs=...): there is no tensor in it.", "portable_equal(model, x)")
    for each in tensors:
        if not each.is_cpu:
            raise SamerunError(
                f"portable_equal(inputs=...): a tensor on {each.device}.", "Give model and inputs on the CPU: .cpu()."
            )
    sizes = {each.shape[0] for each in tensors if each.ndim}
    whole = max(sizes, default=0)
    small = max(whole // 2, 1) if batch is None else batch
    if batch is not None and not 0 < batch < whole:
        raise SamerunError(
            f"portable_equal(batch={batch}): the inputs have {whole} in a batch.",
            f"Give a whole number from 1 to {whole - 1}." if whole > 1 else "Give inputs with a larger batch.",
        )
    state = torch.get_rng_state()
    try:
        noting = calls.note(lambda: _work(model, given, loss))
        found = list(noting.calls.values())
        notes: list[str] = []
        tried = {"threads": _threads(found), "capability": _capability(found, notes)}
        tried["batch"] = _batch(found, noting, lambda: _work(model, _first(given, whole, small), loss), small, notes)
    finally:
        torch.set_rng_state(state)
    operators = [
        Operator(
            call.operator, call.line, call.times, {what: tried[what][at][0] for what in WHAT},
            {what: tried[what][at][1] for what in WHAT}, known(call.operator),
        )
        for at, call in enumerate(found)
    ]  # fmt: skip
    return Equality(operators, notes)


Pairs = list[tuple[str, str]]
"""For each call: what the experiment said of plain torch, and of portable()."""


def _work(model: Callable[..., Any], given: Any, loss: Callable[[Any], torch.Tensor] | None) -> None:
    torch.manual_seed(0)
    work = copy.deepcopy(model) if isinstance(model, torch.nn.Module) else model
    result = work(*given)
    if loss is not None:
        value = loss(result)
    else:
        leaves = [each for each in _pytree.tree_leaves(result) if isinstance(each, torch.Tensor)]
        graded = [each.sum() for each in leaves if each.requires_grad]
        if not graded:
            return
        value = torch.stack(graded).sum()
    if value.requires_grad:
        value.backward()  # type: ignore[no-untyped-call]


def _first(given: Any, whole: int, small: int) -> Any:
    def one(leaf: Any) -> Any:
        is_batch = isinstance(leaf, torch.Tensor) and leaf.ndim and leaf.shape[0] == whole
        return leaf[:small].detach().requires_grad_(leaf.requires_grad) if is_batch else leaf

    return _pytree.tree_map(one, given)


def _compared(first: Sequence[str], second: Sequence[str]) -> tuple[str, str]:
    if first[0].startswith(ERROR):
        return NOT_TRIED, NOT_TRIED  # it cannot be run again by itself
    plain = SAME if first[0] == second[0] else CHANGES
    if first[1].startswith((NO_KERNEL, ERROR)):
        return plain, NO_KERNEL
    return plain, SAME if first[1] == second[1] else CHANGES


def _both(found: list[Call]) -> list[list[str]]:
    return [[calls.outcome(call, False), calls.outcome(call, True)] for call in found]


def _threads(found: list[Call]) -> Pairs:
    with calls.threads(1):
        one = _both(found)
    with calls.threads(max(2, torch.get_num_threads())):
        several = _both(found)
    return [_compared(*pair) for pair in zip(one, several, strict=True)]


def _capability(found: list[Call], notes: list[str]) -> Pairs:
    with tempfile.TemporaryDirectory(prefix="samerun-") as folder:
        saved, answer = Path(folder) / "calls.pt", Path(folder) / "answer.json"
        torch.save(calls.encoded(found), saved)
        environment = {**os.environ, **OLDEST_INSTRUCTIONS, "OMP_NUM_THREADS": str(torch.get_num_threads())}
        command = [sys.executable, "-m", "samerun.numerics.verification.replay", str(saved), str(answer)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise SamerunError(
                f"portable_equal(): the process with other instructions ended with exit code {done.returncode}.",
                done.stderr.strip()[-500:] or None,
            )
        said = json.loads(answer.read_text(encoding="utf-8"))
    here = torch.backends.cpu.get_cpu_capability()
    if said["capability"] == here:
        notes.append(f"capability: torch has no other instructions than {here} here, so they were not tried.")
        return [(NOT_TRIED, NOT_TRIED)] * len(found)
    with calls.threads(torch.get_num_threads()):
        mine = _both(found)
    return [_compared(*pair) for pair in zip(mine, said["outcomes"], strict=True)]


def _batch(
    found: list[Call], noting: calls.Noting, smaller: Callable[[], object], small: int, notes: list[str]
) -> Pairs:
    """Each operator on the part of its inputs that a smaller batch has, against that part of its results."""
    other = calls.note(smaller)
    if [operator for operator, _ in other.shapes] != [operator for operator, _ in noting.shapes]:
        notes.append(f"batch: the model calls other operators with a batch of {small}, so it was not tried.")
        return [(NOT_TRIED, NOT_TRIED)] * len(found)
    pairs: Pairs = []
    for call in found:
        narrow = other.calls[other.shapes[call.number][1]]
        plain, portable = (on_a_part(call, narrow, inside_portable) for inside_portable in (False, True))
        # A row of a portable kernel depends on nothing but its own inputs, unless the operator says otherwise.
        pairs.append((WHOLE, WHOLE) if portable == CHANGES else (plain, portable))
    if any(pair[0] in (NOT_TRIED, WHOLE) for pair in pairs):
        notes.append(
            "batch: what sums over the batch (gradients of weights, batch norm in training, a mean) has no rows to "
            'compare ("not tried"), or other rows by its nature ("whole batch").'
        )
    return pairs
