"""All time steps of an LSTM's layer in one direction as one node of the graph, with the bits of one node an operator.

Of a small LSTM nearly all that a training step takes are its operators, fifty for each time step, and not their
arithmetic. So the steps and their backward pass are one call of C each. Everywhere else (another device, no library,
another mode that looks at operators) the same two passes are composed of operators. What is one node of the graph
depends on shapes and types alone, because derivatives of derivatives are added up along the graph: so their bits are
the same everywhere too, though not those that a graph of single operators would give.

Weights are given once for each time step: so the engine adds up their gradients in the order in which it would those of
the steps, also where a weight is used elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad
from torch.nn.functional import linear
from torch.utils._mode_utils import no_dispatch

from samerun.numerics.aten_handlers.declare import may_fuse_operators_into_one_c_call
from samerun.numerics.kernels import recurrent
from samerun.numerics.kernels.recurrent import LSTMGradients, LSTMStates, OutputGradients

MOST_GRADIENT_VALUES = 1 << 24
"""Of a weight, over all time steps. They are in memory together, where one node a step frees each before the next."""
_PLAIN_TYPES = (torch.nn.Parameter, Tensor)
Layer = tuple[Tensor, Tensor, Tensor]
"""Outputs [time, batch, hidden] and the last hidden state and cell [batch, hidden]."""
ComposeLayer = Callable[[Tensor, Tensor, Tensor, Sequence[Tensor], Sequence[Tensor]], Layer]
"""The layer in single operators, from input_gates, h0, c0, and w_hh and b_hh (or none) for each step in turn."""


def lstm_layer_can_be_one_autograd_node(
    input_gates: Tensor, h0: Tensor, c0: Tensor, w_hh: Tensor, b_hh: Tensor | None
) -> bool:
    """Whether this is float32 of shapes that fit, not too long, and nobody but the backward pass differentiates it."""
    tensors = (input_gates, h0, c0, w_hh, *([] if b_hh is None else [b_hh]))
    if any(type(x) not in _PLAIN_TYPES or x.dtype is not torch.float32 for x in tensors):
        return False
    if input_gates.dim() != 3 or input_gates.numel() == 0 or w_hh.dim() != 2:
        return False
    (times, batch, gates), hidden = input_gates.shape, w_hh.shape[1]
    fits = (h0.shape, c0.shape, w_hh.shape) == ((batch, hidden), (batch, hidden), (gates, hidden))
    if not fits or gates != 4 * hidden or (b_hh is not None and b_hh.shape != (gates,)):
        return False
    if times * w_hh.numel() > MOST_GRADIENT_VALUES or len({x.device for x in tensors}) > 1:
        return False
    return peek_interpreter_stack() is None and forward_ad._current_level < 0  # torch.func, and jvp


def run_lstm_layer(
    compose: ComposeLayer,
    input_gates: Tensor,
    h0: Tensor,
    c0: Tensor,
    w_hh: Tensor,
    b_hh: Tensor | None,
    is_reversed: bool,
) -> Layer:
    """For what `lstm_layer_can_be_one_autograd_node`.

    `compose` gives the same by single operators, for derivatives of derivatives.
    """
    times = input_gates.shape[0]
    weights = [w_hh] * times + ([] if b_hh is None else [b_hh] * times)
    found: Layer = _LSTMLayer.apply(compose, is_reversed, input_gates, h0, c0, *weights)  # type: ignore[no-untyped-call]
    return found


class _LSTMLayer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        compose: ComposeLayer,
        is_reversed: bool,
        input_gates: Tensor,
        h0: Tensor,
        c0: Tensor,
        *weights: Tensor,
    ) -> Layer:
        times = input_gates.shape[0]
        b_hh = weights[times] if len(weights) > times else None
        forward = (
            recurrent.lstm_forward if input_gates.is_cpu and may_fuse_operators_into_one_c_call() else _compose_forward
        )
        with no_dispatch() if forward is recurrent.lstm_forward else nullcontext():
            states = forward(input_gates, h0, c0, weights[0], b_hh, is_reversed)
            last = 0 if is_reversed else times - 1
            found = states.hiddens.clone(), states.hiddens[last].clone(), states.cells[last].clone()
        ctx.compose, ctx.is_reversed, ctx.has_bias = compose, is_reversed, b_hh is not None
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(input_gates, h0, c0, weights[0], *([] if b_hh is None else [b_hh]), *states)
        return found

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        inputs, states = saved[:-4], LSTMStates(*saved[-4:])
        needed = ctx.needs_input_grad[2:]
        if all(grad is None for grad in grads):
            return (None,) * len(ctx.needs_input_grad)
        if torch.is_grad_enabled():
            return None, None, *_differentiable_gradients_per_time_step(ctx.compose, inputs, grads, needed)
        _, h0, c0, w_hh = inputs[:4]
        if h0.is_cpu and may_fuse_operators_into_one_c_call():
            with no_dispatch():
                found = recurrent.lstm_backward(states, c0, w_hh, (grads[0], grads[1], grads[2]), ctx.is_reversed)
        else:
            found = _compose_backward(states, c0, w_hh, (grads[0], grads[1], grads[2]), ctx.is_reversed)
        times = len(states.cells)
        of_w_hh: Sequence[Tensor | None] = [None] * times
        of_b_hh: Sequence[Tensor | None] = [None] * times if ctx.has_bias else []
        if needed[3]:
            before = _states_before(states.hiddens, h0, ctx.is_reversed)
            of_w_hh = torch.bmm(found.input_gates.transpose(1, 2), before).unbind(0)
        if ctx.has_bias and needed[-1]:
            of_b_hh = found.input_gates.sum(1).unbind(0)
        step = 1 if ctx.is_reversed else -1  # the last one first, as the steps would
        return None, None, *found, *of_w_hh[::step], *of_b_hh[::step]


def _states_before(hiddens: Tensor, h0: Tensor, is_reversed: bool) -> Tensor:
    """[time, batch, hidden]: the state that each time step began with."""
    return torch.cat([hiddens[1:], h0[None]] if is_reversed else [h0[None], hiddens[:-1]])


def _compose_forward(
    input_gates: Tensor, h0: Tensor, c0: Tensor, w_hh: Tensor, b_hh: Tensor | None, is_reversed: bool
) -> LSTMStates:
    """gates = hidden_gates + input_gates; c = f * c + i * g; h = o * tanh(c)."""
    h, c, steps = h0, c0, []
    times = range(input_gates.shape[0])
    for t in reversed(times) if is_reversed else times:
        i, f, g, o = (linear(h, w_hh, b_hh) + input_gates[t]).chunk(4, 1)
        gates = torch.stack([torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)])
        c = gates[1] * c + gates[0] * gates[2]
        tanh_c = torch.tanh(c)
        h = gates[3] * tanh_c
        steps.append((gates, c, tanh_c, h))
    return LSTMStates(*(torch.stack(kind[::-1] if is_reversed else kind) for kind in zip(*steps, strict=True)))


def _compose_backward(
    states: LSTMStates,
    c0: Tensor,
    w_hh: Tensor,
    grads: OutputGradients,
    is_reversed: bool,
) -> LSTMGradients:
    """The chain rule, step by step; what a gradient is not given for adds nothing, which is not the same as 0."""
    sigmoid_backward, tanh_backward = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward
    before = _states_before(states.cells, c0, is_reversed)
    times = len(states.cells)
    grad_outputs, grad_h, grad_c = grads
    found: list[Tensor] = [c0] * times
    for t in range(times) if is_reversed else reversed(range(times)):
        i, f, g, o = states.gates[t]
        tanh_c = states.tanh_cells[t]
        grad_h = _sum_of_present(grad_h, None if grad_outputs is None else grad_outputs[t])
        of_o = torch.zeros_like(o)
        if grad_h is not None:
            of_o = sigmoid_backward(grad_h * tanh_c, o)
            grad_c = _sum_of_present(grad_c, tanh_backward(grad_h * o, tanh_c))
        assert grad_c is not None
        of_i, of_f = sigmoid_backward(grad_c * g, i), sigmoid_backward(grad_c * before[t], f)
        found[t] = torch.cat([of_i, of_f, tanh_backward(grad_c * i, g), of_o], 1)
        grad_c = grad_c * f
        grad_h = torch.mm(found[t], w_hh)
    assert grad_h is not None and grad_c is not None
    return LSTMGradients(torch.stack(found), grad_h, grad_c)


def _sum_of_present(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    return a + b


def _differentiable_gradients_per_time_step(
    compose: ComposeLayer, inputs: Sequence[Tensor], grads: Sequence[Tensor | None], needed: Sequence[bool]
) -> list[Tensor | None]:
    """The gradients by single operators, of a second pass through the layer, as nodes of the graph."""
    times = inputs[0].shape[0]
    each = [*inputs[:3], *[inputs[3]] * times, *[bias for bias in inputs[4:] for _ in range(times)]]
    views = [x.view_as(x) for x in each]
    outputs = compose(views[0], views[1], views[2], views[3 : 3 + times], views[3 + times :])
    given = [(output, grad) for output, grad in zip(outputs, grads, strict=True) if grad is not None]
    wanted = [view for view, need in zip(views, needed, strict=True) if need]
    found = iter(
        torch.autograd.grad(
            [output for output, _ in given], wanted, [grad for _, grad in given], create_graph=True, allow_unused=True
        )
    )
    result = [next(found) if need else None for need in needed]
    return [*result[:3], *result[3 : 3 + times][::-1], *result[3 + times :][::-1]]
