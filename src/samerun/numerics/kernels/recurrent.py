"""All time steps of an LSTM's layer in one direction, and their backward pass, in one call of the C library each.

float32 of the CPU: the steps of `aten_handlers/lstm_layer.py`, which composes them where this cannot serve.
"""

from __future__ import annotations

from struct import pack
from typing import NamedTuple

import torch
from torch import Tensor

from samerun.numerics.kernels import library
from samerun.numerics.status import DONE

_forward = library.declare_native_function("samerun_lstm_forward", "ip" + 10 * "p")
_backward = library.declare_native_function("samerun_lstm_backward", "ip" + 11 * "p")


class LSTMStates(NamedTuple):
    """What the steps leave behind for the backward pass."""

    gates: Tensor
    """[time, 4, batch, hidden]: input, forget, cell and output gate."""
    cells: Tensor
    """[time, batch, hidden], as the two that follow."""
    tanh_cells: Tensor
    hiddens: Tensor


OutputGradients = tuple[Tensor | None, Tensor | None, Tensor | None]
"""Of the outputs, the last hidden state and the last cell. Not all are None."""


class LSTMGradients(NamedTuple):
    input_gates: Tensor
    h0: Tensor
    c0: Tensor


def _pack_sizes(input_gates: Tensor, is_reversed: bool) -> bytes:
    times, batch, gates = input_gates.shape
    return pack("=4q", times, batch, gates // 4, is_reversed)


def lstm_forward(
    input_gates: Tensor, h0: Tensor, c0: Tensor, w_hh: Tensor, b_hh: Tensor | None, is_reversed: bool
) -> LSTMStates:
    # Turned once, and not in each step's product, the weight saves a tenth of a small layer's forward pass.
    input_gates, h0, c0, w_hh = (x.contiguous() for x in (input_gates, h0, c0, w_hh.t()))
    b_hh = None if b_hh is None else b_hh.contiguous()
    times, batch, hidden = input_gates.shape[0], *h0.shape
    out = LSTMStates(h0.new_empty(times, 4, batch, hidden), *(h0.new_empty(times, batch, hidden) for _ in range(3)))
    hidden_gates = h0.new_empty(batch, 4, hidden)
    status = _forward(
        _pack_sizes(input_gates, is_reversed), input_gates.data_ptr(), w_hh.data_ptr(),
        None if b_hh is None else b_hh.data_ptr(), h0.data_ptr(), c0.data_ptr(),
        hidden_gates.data_ptr(), *(x.data_ptr() for x in out),
    )  # fmt: skip
    if status != DONE:
        raise MemoryError("samerun: no memory for an LSTM")
    return out


def lstm_backward(
    states: LSTMStates,
    c0: Tensor,
    w_hh: Tensor,
    grads: OutputGradients,
    is_reversed: bool,
) -> LSTMGradients:
    c0, w_hh = c0.contiguous(), w_hh.contiguous()
    given = [None if x is None else x.contiguous() for x in grads]
    times, batch, hidden = states.cells.shape
    out = LSTMGradients(c0.new_empty(times, batch, 4 * hidden), *(torch.empty_like(states.cells[0]) for _ in range(2)))
    status = _backward(
        _pack_sizes(out.input_gates, is_reversed), w_hh.data_ptr(), states.gates.data_ptr(), states.cells.data_ptr(),
        states.tanh_cells.data_ptr(), c0.data_ptr(), *(None if x is None else x.data_ptr() for x in given),
        *(x.data_ptr() for x in out),
    )  # fmt: skip
    if status != DONE:
        raise MemoryError("samerun: no memory for an LSTM")
    return out
