"""LSTM by its textbook equations, step by step. (GRU and plain RNN are made of such steps in torch itself.)"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear

from samerun.numerics.operators.declare import Members


def _direction(
    x: Tensor, h: Tensor, c: Tensor, weights: Sequence[Tensor], has_biases: bool, backwards: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """x [time, batch, features]. gates = (W_hh h + b_hh) + (W_ih x + b_ih); c = f * c + i * g; h = o * tanh(c)."""
    w_ih, w_hh = weights[:2]
    b_ih, b_hh = weights[2:4] if has_biases else (None, None)
    projection = weights[-1] if len(weights) > (4 if has_biases else 2) else None
    given = linear(x, w_ih, b_ih).unbind(0)
    found = []
    for at in reversed(range(len(given))) if backwards else range(len(given)):
        gates = linear(h, w_hh, b_hh) + given[at]
        i, f, g, o = gates.chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        if projection is not None:
            h = linear(h, projection)
        found.append(h)
    return torch.stack(found[::-1] if backwards else found), h, c


def lstm(
    x: Tensor,
    state: Sequence[Tensor],
    weights: Sequence[Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """What torch.lstm computes for a tensor of whole sequences."""
    if batch_first:
        x = x.transpose(0, 1)
    directions = 2 if bidirectional else 1
    each = len(weights) // (layers * directions)
    hs, cs = [], []
    for layer in range(layers):
        found = []
        for direction in range(directions):
            at = layer * directions + direction
            y, h, c = _direction(
                x, state[0][at], state[1][at], weights[at * each : (at + 1) * each], has_biases, direction == 1
            )
            found.append(y)
            hs.append(h)
            cs.append(c)
        x = torch.cat(found, -1) if bidirectional else found[0]
        if dropout and train and layer < layers - 1:
            x = torch.dropout(x, dropout, True)
    return (x.transpose(0, 1) if batch_first else x), torch.stack(hs), torch.stack(cs)


COMPOSED: Members = {"aten::lstm.input": lstm}
