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
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree

from samerun.base.errors import NotPortableError, SamerunError
from samerun.base.machine import OLDEST_INSTRUCTIONS
from samerun.numerics.aten_handlers.declare import split_names
from samerun.numerics.verification import calls
from samerun.numerics.verification.calls import ERROR, NO_KERNEL, RecordedCall

CIRCUMSTANCES = ("threads", "capability", "batch")
KNOWN_ELSEWHERE = " *"
WHOLE_BATCH = "whole batch"


@dataclass(frozen=True)
class OperatorEquality:
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

    operators: list[OperatorEquality]
    notes: list[str]

    @property
    def changing(self) -> list[OperatorEquality]:
        """The operators whose bits changed in plain torch."""
        return [one for one in self.operators if CHANGES in one.plain.values()]

    @property
    def portable(self) -> bool:
        """Whether every operator has a portable kernel, none of which changed."""
        return all(set(one.portable.values()) <= {SAME, NOT_TRIED, WHOLE_BATCH} for one in self.operators)

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("operator", "line", "calls", *CIRCUMSTANCES, "portable()")]
        rows += [
            (one.operator.removeprefix(
                "aten."
            ), one.line, str(one.times), *(_format_plain_outcome_cell(one, what) for what in CIRCUMSTANCES),
             _worst_outcome_ignoring_untried(one.portable))
            for one in self.operators
            if CHANGES in one.plain.values() or one.known or _worst_outcome_ignoring_untried(one.portable) != SAME
        ]  # fmt: skip
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        rest = len(self.operators) - len(rows) + 1
        head = f"{len(self.changing)} of {len(self.operators)} operators change their bits in plain torch."
        shown = [f"{rest} more give the same bits in plain torch."] if rest else []
        if any(KNOWN_ELSEWHERE in cell for row in rows for cell in row):
            shown.append("* the same here, but known to change with other inputs or on other machines")
        return "\n".join([head, "", *table, *shown, *self.notes])


def _format_plain_outcome_cell(operator: OperatorEquality, circumstance: str) -> str:
    if operator.plain[circumstance] != CHANGES and circumstance in operator.known:
        return operator.plain[circumstance] + KNOWN_ELSEWHERE
    return operator.plain[circumstance]


def _worst_outcome_ignoring_untried(outcomes: dict[str, str]) -> str:
    for outcome in (CHANGES, NO_KERNEL):
        if outcome in outcomes.values():
            return outcome
    return SAME


def examine_bit_equality(
    model: Callable[..., Any],
    inputs: Any,
    loss: Callable[[Any], torch.Tensor] | None,
    smaller_batch_size_or_half: int | None,
) -> Equality:
    """What `samerun.portable_equal` returns and raises."""
    arguments = inputs if isinstance(inputs, tuple) else (inputs,)
    tensors = [leaf for leaf in _pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
    if not tensors:
        raise SamerunError("portable_equal(inputs=...): there is no tensor in it.", "portable_equal(model, x)")
    for tensor in tensors:
        if not tensor.is_cpu:
            raise SamerunError(
                f"portable_equal(inputs=...): a tensor on {tensor.device}.", "Give model and inputs on the CPU: .cpu()."
            )
    sizes = {tensor.shape[0] for tensor in tensors if tensor.ndim}
    whole = max(sizes, default=0)
    small = max(whole // 2, 1) if smaller_batch_size_or_half is None else smaller_batch_size_or_half
    if smaller_batch_size_or_half is not None and not 0 < smaller_batch_size_or_half < whole:
        raise SamerunError(
            f"portable_equal(batch={smaller_batch_size_or_half}): the inputs have {whole} in a batch.",
            f"Give a whole number from 1 to {whole - 1}." if whole > 1 else "Give inputs with a larger batch.",
        )
    state = torch.get_rng_state()
    try:
        recorder = calls.record_operator_calls(lambda: _run_model_copy_and_backward(model, arguments, loss))
        recorded = list(recorder.calls.values())
        notes: list[str] = []
        outcomes = {
            "threads": _compare_thread_counts(recorded),
            "capability": _compare_with_oldest_cpu_capability(recorded, notes),
        }
        run_smaller = partial(_run_model_copy_and_backward, model, _take_smaller_batch(arguments, whole, small), loss)
        outcomes["batch"] = _compare_operators_on_smaller_batch(recorded, recorder, run_smaller, small, notes)
    finally:
        torch.set_rng_state(state)
    operators = [
        OperatorEquality(
            call.operator, call.line, call.times, {name: outcomes[name][at][0] for name in CIRCUMSTANCES},
            {name: outcomes[name][at][1] for name in CIRCUMSTANCES}, list_known_change_circumstances(call.operator),
        )
        for at, call in enumerate(recorded)
    ]  # fmt: skip
    return Equality(operators, notes)


class OutcomePair(NamedTuple):
    plain: str
    portable: str


OutcomePairs = list[OutcomePair]
"""For each call: what the experiment said of plain torch, and of portable()."""


def _run_model_copy_and_backward(
    model: Callable[..., Any], arguments: Any, loss: Callable[[Any], torch.Tensor] | None
) -> None:
    torch.manual_seed(0)
    copied_model = copy.deepcopy(model) if isinstance(model, torch.nn.Module) else model
    result = copied_model(*arguments)
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


def _take_smaller_batch(arguments: Any, batch_size: int, smaller_size: int) -> Any:
    def shorten(leaf: Any) -> Any:
        is_batch = isinstance(leaf, torch.Tensor) and leaf.ndim and leaf.shape[0] == batch_size
        return leaf[:smaller_size].detach().requires_grad_(leaf.requires_grad) if is_batch else leaf

    return _pytree.tree_map(shorten, arguments)


def _compare_rerun_outcomes(
    first_plain_and_portable: Sequence[str], second_plain_and_portable: Sequence[str]
) -> OutcomePair:
    if first_plain_and_portable[0].startswith(ERROR):
        return OutcomePair(NOT_TRIED, NOT_TRIED)  # it cannot be run again by itself
    plain = SAME if first_plain_and_portable[0] == second_plain_and_portable[0] else CHANGES
    if first_plain_and_portable[1].startswith((NO_KERNEL, ERROR)):
        return OutcomePair(plain, NO_KERNEL)
    return OutcomePair(plain, SAME if first_plain_and_portable[1] == second_plain_and_portable[1] else CHANGES)


def _digest_plain_and_portable_reruns(recorded: list[RecordedCall]) -> list[list[str]]:
    return [
        [calls.rerun_and_digest_or_error(call, False), calls.rerun_and_digest_or_error(call, True)] for call in recorded
    ]


def _compare_thread_counts(recorded: list[RecordedCall]) -> OutcomePairs:
    with calls.temporary_torch_num_threads(1):
        single = _digest_plain_and_portable_reruns(recorded)
    with calls.temporary_torch_num_threads(max(2, torch.get_num_threads())):
        several = _digest_plain_and_portable_reruns(recorded)
    return [_compare_rerun_outcomes(*pair) for pair in zip(single, several, strict=True)]


def _compare_with_oldest_cpu_capability(recorded: list[RecordedCall], notes: list[str]) -> OutcomePairs:
    with tempfile.TemporaryDirectory(prefix="samerun-") as folder:
        saved, answer = Path(folder) / "calls.pt", Path(folder) / "answer.json"
        torch.save(calls.encode_calls(recorded), saved)
        environment = {**os.environ, **OLDEST_INSTRUCTIONS, "OMP_NUM_THREADS": str(torch.get_num_threads())}
        command = [sys.executable, "-m", "samerun.numerics.verification.calls", str(saved), str(answer)]
        process = subprocess.run(command, env=environment, capture_output=True, text=True)
        if process.returncode:
            raise SamerunError(
                f"portable_equal(): the process with other instructions ended with exit code {process.returncode}.",
                process.stderr.strip()[-500:] or None,
            )
        answer_record = json.loads(answer.read_text(encoding="utf-8"))
    here = torch.backends.cpu.get_cpu_capability()
    if answer_record["capability"] == here:
        notes.append(f"capability: torch has no other instructions than {here} here, so they were not tried.")
        return [OutcomePair(NOT_TRIED, NOT_TRIED)] * len(recorded)
    with calls.temporary_torch_num_threads(torch.get_num_threads()):
        mine = _digest_plain_and_portable_reruns(recorded)
    return [_compare_rerun_outcomes(*pair) for pair in zip(mine, answer_record["outcomes"], strict=True)]


def _compare_operators_on_smaller_batch(
    recorded: list[RecordedCall],
    recorder: calls.CallRecorder,
    run_smaller: Callable[[], object],
    smaller_size: int,
    notes: list[str],
) -> OutcomePairs:
    """Each operator on the part of its inputs that a smaller batch has, against that part of its results."""
    smaller_recorder = calls.record_operator_calls(run_smaller)
    if [operator for operator, _ in smaller_recorder.shapes] != [operator for operator, _ in recorder.shapes]:
        notes.append(f"batch: the model calls other operators with a batch of {smaller_size}, so it was not tried.")
        return [OutcomePair(NOT_TRIED, NOT_TRIED)] * len(recorded)
    pairs: OutcomePairs = []
    for call in recorded:
        narrow = smaller_recorder.calls[smaller_recorder.shapes[call.number][1]]
        plain, portable = (
            rerun_and_classify_batch_size_effect(call, narrow, inside_portable) for inside_portable in (False, True)
        )
        # A row of a portable kernel depends on nothing but its own inputs, unless the operator says otherwise.
        pairs.append(OutcomePair(WHOLE_BATCH, WHOLE_BATCH) if portable == CHANGES else OutcomePair(plain, portable))
    if any(pair[0] in (NOT_TRIED, WHOLE_BATCH) for pair in pairs):
        notes.append(
            "batch: what sums over the batch (gradients of weights, batch norm in training, a mean) has no rows to "
            'compare ("not tried"), or other rows by its nature ("whole batch").'
        )
    return pairs


SAME, CHANGES, NOT_TRIED = "same", "changes", "not tried"


def find_only_shorter_dim(full: torch.Tensor, smaller: torch.Tensor) -> int | None:
    """The one dimension in which `smaller` is smaller; None if there is none, or another difference."""
    if full.ndim != smaller.ndim or full.dtype != smaller.dtype:
        return None
    differing = [dim for dim in range(full.ndim) if full.shape[dim] != smaller.shape[dim]]
    return differing[0] if len(differing) == 1 and full.shape[differing[0]] > smaller.shape[differing[0]] else None


def _narrow_full_or_take_smaller(full: Any, smaller: Any) -> Any:
    """As much of `full` as `smaller` has; the very number or tensor that belongs to the smaller batch otherwise."""
    if not isinstance(full, torch.Tensor) or not isinstance(smaller, torch.Tensor):
        return smaller
    dim = find_only_shorter_dim(full, smaller)
    if dim is None:
        return full if full.shape == smaller.shape else smaller
    return full.narrow(dim, 0, smaller.shape[dim])


def rerun_and_classify_batch_size_effect(call: RecordedCall, smaller_call: RecordedCall, inside_portable: bool) -> str:
    """ "same" or "changes"; "not tried" where the results have no part for the smaller batch, as sums over it have
    not; "no portable kernel".
    """
    whole_arguments, part_arguments = (call.args, call.kwargs), (smaller_call.args, smaller_call.kwargs)
    leaves, spec = _pytree.tree_flatten(whole_arguments)
    others = _pytree.tree_leaves(part_arguments)
    if len(leaves) != len(others):
        return NOT_TRIED
    args, kwargs = _pytree.tree_unflatten(
        [_narrow_full_or_take_smaller(*pair) for pair in zip(leaves, others, strict=True)], spec
    )
    try:
        whole = calls.reseed_with_0_and_rerun_call(call, inside_portable)
        part = calls.reseed_with_0_and_rerun_call(RecordedCall(call.operator, call.line, args, kwargs), inside_portable)
    except NotPortableError:
        return NO_KERNEL
    except Exception:  # the part is no input that the operator takes
        return NOT_TRIED
    outcome = NOT_TRIED
    for wide, rows in zip(whole, part, strict=True):
        dim = find_only_shorter_dim(wide, rows)
        if dim is None:
            continue
        same = calls.digest_results([wide.narrow(dim, 0, rows.shape[dim])]) == calls.digest_results([rows])
        outcome = CHANGES if not same else outcome if outcome == CHANGES else SAME
    return outcome


THREADS = frozenset(
    split_names("""
    dot mv mm addmm bmm baddbmm convolution convolution_backward sum mean var std var_mean prod _softmax
    native_layer_norm native_layer_norm_backward native_batch_norm native_batch_norm_backward _native_batch_norm_legit
    sigmoid gelu sinh index_put _index_put_impl _linalg_svd linalg_qr linalg_inv_ex _linalg_solve_ex _linalg_eigh
    linalg_lstsq linalg_cholesky_ex _fft_r2c
""")
)

CAPABILITY = frozenset(
    split_names("""
    dot mv mm addmm bmm baddbmm convolution convolution_backward _softmax _softmax_backward_data _log_softmax
    _log_softmax_backward_data native_layer_norm native_layer_norm_backward native_group_norm
    native_group_norm_backward native_batch_norm native_batch_norm_backward _native_batch_norm_legit
    binary_cross_entropy_with_logits log_sigmoid_forward log_sigmoid_backward tanh tanh_backward sigmoid
    sigmoid_backward gelu gelu_backward expm1 silu silu_backward softplus softplus_backward mish mish_backward elu
    elu_backward sinh exp2 pow log1p lgamma digamma add sub atan2 lerp addcmul glu glu_backward
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward mkldnn_rnn_layer
    mkldnn_rnn_layer_backward _embedding_bag _embedding_bag_dense_backward upsample_bilinear2d
    upsample_bilinear2d_backward upsample_bicubic2d grid_sampler_2d grid_sampler_2d_backward _cdist_forward
    _cdist_backward _linalg_svd linalg_qr linalg_inv_ex _linalg_solve_ex _linalg_eigh _linalg_det linalg_lstsq
    linalg_cholesky_ex linalg_matrix_exp normal uniform randn _fused_adam _fused_adamw _fused_sgd
""")
)

BATCH = frozenset(split_names("mm addmm convolution sigmoid"))

KNOWN = {"threads": THREADS, "capability": CAPABILITY, "batch": BATCH}


def list_known_change_circumstances(operator_name: str) -> list[str]:
    """What an operator ("aten.mm.default") is known to change with."""
    name = operator_name.split(".")[1].rstrip("_").removeprefix("_foreach_")
    return [circumstance for circumstance, names in KNOWN.items() if name in names]
