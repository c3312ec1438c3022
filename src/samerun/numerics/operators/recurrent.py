"""LSTM by its textbook equations, step by step. (GRU and plain RNN are made of such steps in torch itself.)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from samerun.numerics.operators.declare import Members


def _direction(
    given: Sequence[Tensor], h: Tensor, c: Tensor, weights: Sequence[Tensor], has_biases: bool, backwards: bool
) -> tuple[list[Tensor], Tensor, Tensor]:
    """given: W_ih x + b_ih of each step, [batch of the step, 4 * hidden]; batches shrink along a packed sequence.

    gates = (W_hh h + b_hh) + given; c = f * c + i * g; h = o * tanh(c).
    """
    w_hh, b_hh = weights[1], weights[3] if has_biases else None
    projection = weights[-1] if len(weights) > (4 if has_biases else 2) else None
    first_h, first_c = h, c
    done_h: list[Tensor] = []
    done_c: list[Tensor] = []
    size = given[-1 if backwards else 0].shape[0]
    h, c = h[:size], c[:size]
    found = []
    for step in reversed(given) if backwards else given:
        size, before = step.shape[0], h.shape[0]
        if size < before:  # sequences that end here
            done_h.append(h[size:])
            done_c.append(c[size:])
            h, c = h[:size], c[:size]
        elif size > before:  # sequences that begin here, seen from the end
            h, c = torch.cat([h, first_h[before:size]]), torch.cat([c, first_c[before:size]])
        i, f, g, o = (linear(h, w_hh, b_hh) + step).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        if projection is not None:
            h = linear(h, projection)
        found.append(h)
    if done_h:
        h, c = torch.cat([h, *reversed(done_h)]), torch.cat([c, *reversed(done_c)])
    return found[::-1] if backwards else found, h, c


def _layers(
    x: Tensor,
    sizes: Sequence[int] | None,
    state: Sequence[Tensor],
    weights: Sequence[Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """x: [time, batch, features], or [steps of all sequences, features] with the batch `sizes` of each time."""
    directions = 2 if bidirectional else 1
    each = len(weights) // (layers * directions)
    hs, cs = [], []
    for layer in range(layers):
        found = []
        for direction in range(directions):
            at = layer * directions + direction
            own = weights[at * each : (at + 1) * each]
            given = linear(x, own[0], own[2] if has_biases else None)
            steps = given.unbind(0) if sizes is None else torch.split_with_sizes(given, list(sizes), 0)
            y, h, c = _direction(steps, state[0][at], state[1][at], own, has_biases, direction == 1)
            found.append(torch.stack(y) if sizes is None else torch.cat(y))
            hs.append(h)
            cs.append(c)
        x = torch.cat(found, -1) if bidirectional else found[0]
        if dropout and train and layer < layers - 1:
            x = torch.dropout(x, dropout, True)
    return x, torch.stack(hs), torch.stack(cs)


def lstm(
    x: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor], *settings: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """What torch.lstm computes for a tensor of whole sequences. The last setting is `batch_first`."""
    *rest, batch_first = settings
    y, h, c = _layers(x.transpose(0, 1) if batch_first else x, None, state, weights, *rest)
    return (y.transpose(0, 1) if batch_first else y), h, c


def lstm_of_packed(
    x: Tensor, batch_sizes: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor], *settings: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """What torch.lstm computes for a packed sequence."""
    return _layers(x, batch_sizes.tolist(), state, weights, *settings)


COMPOSED: Members = {"aten::lstm.input": lstm, "aten::lstm.data": lstm_of_packed}
