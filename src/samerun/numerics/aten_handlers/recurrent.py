"""LSTM, GRU and plain RNN by their textbook equations, step by step: torch fuses the steps on CUDA, and the LSTM's on
some CPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from samerun.numerics.aten_handlers.declare import Handler, Members, NoPortableKernel
from samerun.numerics.aten_handlers.lstm_layer import lstm_layer_can_be_one_autograd_node, run_lstm_layer

State = tuple[Tensor, ...]
"""(h, c) of an LSTM, (h,) of the others; each [batch, hidden]. The first is what the step gives."""
Step = Callable[[Tensor, Tensor, State], State]
"""W_ih x + b_ih and W_hh h + b_hh, each [batch, gates * hidden], and the state -> the next state."""


def _lstm_step(input_gates: Tensor, hidden_gates: Tensor, state: State) -> State:
    """gates = hidden_gates + input_gates; c = f * c + i * g; h = o * tanh(c)."""
    i, f, g, o = (hidden_gates + input_gates).chunk(4, 1)
    c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def _gru_step(input_gates: Tensor, hidden_gates: Tensor, state: State) -> State:
    """r, z = sigmoid(hidden_gates + input_gates); n = tanh(input_gates + r * hidden_gates); h = (h - n) * z + n."""
    (given_r, given_z, given_n), (kept_r, kept_z, kept_n) = input_gates.chunk(3, 1), hidden_gates.chunk(3, 1)
    n = torch.tanh(given_n + kept_n * torch.sigmoid(kept_r + given_r))
    return ((state[0] - n) * torch.sigmoid(kept_z + given_z) + n,)


def _tanh_step(input_gates: Tensor, hidden_gates: Tensor, state: State) -> State:
    return (torch.tanh(hidden_gates + input_gates),)


def _relu_step(input_gates: Tensor, hidden_gates: Tensor, state: State) -> State:
    return (torch.relu(hidden_gates + input_gates),)


class Direction(NamedTuple):
    """The products of one layer in one direction."""

    multiply_input: Callable[[Tensor], Tensor]
    """x -> W_ih x + b_ih"""
    multiply_hidden: Callable[[Tensor], Tensor]
    """h -> W_hh h + b_hh"""
    projection: Tensor | None = None
    dense_hidden: tuple[Tensor, Tensor | None] | None = None
    """W_hh and b_hh, where they are tensors."""


MakeDirections = Callable[[Sequence[Any], bool, int], list[Direction]]
"""Weights, `has_biases`, number of directions of all layers."""


def _make_directions_of_dense_weights(weights: Sequence[Tensor], has_biases: bool, number: int) -> list[Direction]:
    """Of each direction in turn, W_ih, W_hh, both biases if there are any, and the projection that an LSTM may have."""
    each = len(weights) // number
    directions = []
    for start in range(0, len(weights), each):
        w_ih, w_hh, *rest = weights[start : start + each]
        b_ih, b_hh = rest[:2] if has_biases else (None, None)
        projection = rest[-1] if len(rest) > (2 if has_biases else 0) else None
        directions.append(
            Direction(
                partial(linear, weight=w_ih, bias=b_ih),
                partial(linear, weight=w_hh, bias=b_hh),
                projection,
                (w_hh, b_hh),
            )
        )
    return directions


def _make_quantized_directions(cells: Sequence[Any], has_biases: bool, number: int) -> list[Direction]:
    """Of `torch.classes.rnn.CellParamsBase`: weights of 8 bits, or of float16."""
    directions = []
    for cell in cells:
        (kind, _, _, reduce_range, weights), _ = cell.__getstate__()
        multiply: Callable[[Any, Tensor], Tensor]
        if kind == "quantized_dynamic":
            multiply = partial(_multiply_by_8_bit_weight, bool(reduce_range[0]))
        elif kind == "quantized_fp16":
            multiply = _multiply_by_float16_weight
        else:
            raise NoPortableKernel(f"recurrent weights of kind {kind}.")
        w_ih, w_hh = weights
        directions.append(Direction(partial(multiply, w_ih), partial(multiply, w_hh)))
    return directions


def _multiply_by_8_bit_weight(reduce_range: bool, packed_weight: Any, x: Tensor) -> Tensor:
    y: Tensor = torch.ops.quantized.linear_dynamic(x, packed_weight, reduce_range)
    return y


def _multiply_by_float16_weight(packed_weight: Any, x: Tensor) -> Tensor:
    y: Tensor = torch.ops.quantized.linear_dynamic_fp16(x, packed_weight)
    return y


def _run_one_direction(
    step: Step, input_gates: Sequence[Tensor], state: State, direction: Direction, is_reversed: bool
) -> tuple[list[Tensor], State]:
    """All time steps of one layer in one direction: the outputs in order of time, and the last state.

    input_gates: W_ih x + b_ih of each time, [batch of the time, gates * hidden]; batches shrink along a packed
    sequence.
    """
    first = state
    ended_states: list[State] = []
    size = input_gates[-1 if is_reversed else 0].shape[0]
    state = tuple(part[:size] for part in first)
    outputs = []
    for gates in reversed(input_gates) if is_reversed else input_gates:
        size, before = gates.shape[0], state[0].shape[0]
        if size < before:  # sequences that end here
            ended_states.append(tuple(part[size:] for part in state))
            state = tuple(part[:size] for part in state)
        elif size > before:  # sequences that begin here, seen from the end
            state = tuple(torch.cat([part, new[before:size]]) for part, new in zip(state, first, strict=True))
        state = step(gates, direction.multiply_hidden(state[0]), state)
        if direction.projection is not None:
            state = (linear(state[0], direction.projection), *state[1:])
        outputs.append(state[0])
    if ended_states:
        state = tuple(torch.cat(parts) for parts in zip(state, *reversed(ended_states), strict=True))
    return outputs[::-1] if is_reversed else outputs, state


def _compose_lstm_layer(
    is_reversed: bool,
    input_gates: Tensor,
    h0: Tensor,
    c0: Tensor,
    w_hh: Sequence[Tensor],
    b_hh: Sequence[Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    """As `_run_one_direction`; each step in turn has weights of its own."""
    state: State = (h0, c0)
    outputs, steps = [], input_gates.unbind(0)
    for number, gates in enumerate(reversed(steps) if is_reversed else steps):
        state = _lstm_step(gates, linear(state[0], w_hh[number], b_hh[number] if b_hh else None), state)
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if is_reversed else outputs), state[0], state[1]


def _run_layers(
    step: Step,
    make_directions: MakeDirections,
    x: Tensor,
    batch_sizes: Sequence[int] | None,
    states: Sequence[Tensor],
    weights: Sequence[Any],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, ...]:
    """The outputs and the last state of each kind.

    x: [time, batch, features], or [steps of all sequences, features] with the batch `batch_sizes` of each time.
    """
    each = 2 if bidirectional else 1
    directions = make_directions(weights, has_biases, num_layers * each)
    last: list[State] = []
    for layer in range(num_layers):
        found = []
        for at in range(layer * each, layer * each + each):
            direction, is_reversed = directions[at], at % each == 1
            input_gates = direction.multiply_input(x)
            begin = tuple(kind[at] for kind in states)
            if step is _lstm_step and batch_sizes is None and direction.projection is None and direction.dense_hidden:
                h0, c0, w_hh, b_hh = *begin, *direction.dense_hidden
                if lstm_layer_can_be_one_autograd_node(input_gates, h0, c0, w_hh, b_hh):
                    compose = partial(_compose_lstm_layer, is_reversed)
                    y, h, c = run_lstm_layer(compose, input_gates, h0, c0, w_hh, b_hh, is_reversed)
                    found.append(y)
                    last.append((h, c))
                    continue
            steps = (
                input_gates.unbind(0)
                if batch_sizes is None
                else torch.split_with_sizes(input_gates, list(batch_sizes), 0)
            )
            outputs, end = _run_one_direction(step, steps, begin, direction, is_reversed)
            found.append(torch.stack(outputs) if batch_sizes is None else torch.cat(outputs))
            last.append(end)
        x = torch.cat(found, -1) if bidirectional else found[0]
        if dropout and train and layer < num_layers - 1:
            x = torch.dropout(x, dropout, True)
    return (x, *(torch.stack(kind) for kind in zip(*last, strict=True)))


def _as_state_tuple(state: Any) -> Sequence[Tensor]:
    return (state,) if isinstance(state, Tensor) else state


# `quantised`: what the quantised forms take besides, `dtype` and `use_dynamic`; their weights tell it too.
def _make_padded_sequence_handler(step: Step, make_directions: MakeDirections) -> Handler:
    def run(x: Tensor, state: Any, weights: Sequence[Any], *settings: Any, **quantised: Any) -> tuple[Tensor, ...]:
        """What torch.lstm and its kin compute for a tensor of whole sequences. The last setting is `batch_first`."""
        *rest, batch_first = settings
        x = x.transpose(0, 1) if batch_first else x
        y, *last = _run_layers(step, make_directions, x, None, _as_state_tuple(state), weights, *rest)
        return (y.transpose(0, 1) if batch_first else y, *last)

    return run


def _make_packed_sequence_handler(step: Step, make_directions: MakeDirections) -> Handler:
    def run(
        x: Tensor, batch_sizes: Tensor, state: Any, weights: Sequence[Any], *settings: Any, **quantised: Any
    ) -> tuple[Tensor, ...]:
        """What torch.lstm and its kin compute for a packed sequence."""
        states = _as_state_tuple(state)
        return _run_layers(step, make_directions, x, batch_sizes.tolist(), states, weights, *settings)

    return run


def _make_cell_handler(step: Step) -> Handler:
    def run(
        x: Tensor, state: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
    ) -> Any:
        """What torch.lstm_cell and its kin compute: one step. Raises RuntimeError with torch's words on shapes."""
        states = _as_state_tuple(state)
        for number, part in enumerate(states):
            if part.shape[0] != x.shape[0]:
                raise RuntimeError(
                    f"Input batch size {x.shape[0]} doesn't match hidden{number} batch size {part.shape[0]}"
                )
            if part.shape[1] != w_hh.shape[1]:
                raise RuntimeError(
                    f"hidden{number} has inconsistent hidden_size: got {part.shape[1]}, expected {w_hh.shape[1]}"
                )
        found = step(linear(x, w_ih, b_ih), linear(states[0], w_hh, b_hh), tuple(states))
        return found if len(found) > 1 else found[0]

    return run


_STEPS: dict[str, Step] = {"lstm": _lstm_step, "gru": _gru_step, "rnn_tanh": _tanh_step, "rnn_relu": _relu_step}


def _make_sequence_handlers(prefix: str, kinds: Sequence[str], make_directions: MakeDirections) -> Members:
    return {
        f"aten::{prefix}{kind}.{form}": make_handler(_STEPS[kind], make_directions)
        for kind in kinds
        for form, make_handler in (("input", _make_padded_sequence_handler), ("data", _make_packed_sequence_handler))
    }


COMPOSED: Members = {
    **_make_sequence_handlers("", tuple(_STEPS), _make_directions_of_dense_weights),
    **{f"aten::{kind}_cell": _make_cell_handler(step) for kind, step in _STEPS.items()},
}
QUANTIZED: Members = _make_sequence_handlers("quantized_", ("lstm", "gru"), _make_quantized_directions)
