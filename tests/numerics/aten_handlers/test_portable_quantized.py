"""Dynamically quantised layers inside portable(): beside torch's own, and beside integers that are written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.ao.quantization import default_dynamic_qconfig, per_channel_dynamic_qconfig, quantize_dynamic
from torch.nn.utils.rnn import pack_sequence
from torch.utils._pytree import tree_leaves

import samerun

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.ao.quantization is deprecated", "ignore:.*quantized tensor creation"),
    pytest.mark.skipif("x86" not in torch.backends.quantized.supported_engines, reason="other packed weights"),
]


def draw(*size: int) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(sum(size)))


def quantized(layer: nn.Module, kind: Any) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 4)
    whole = nn.Sequential(layer).eval()
    if isinstance(kind, torch.dtype):
        return quantize_dynamic(whole, {type(layer)}, dtype=kind)[0]
    return quantize_dynamic(whole, {type(layer): kind})[0]


def tensors(results: Any) -> list[Tensor]:
    return [leaf.data if hasattr(leaf, "data") else leaf for leaf in tree_leaves(results) if leaf is not None]


PACKED = pack_sequence([draw(5, 8), draw(3, 8), draw(2, 8)])
KINDS = {"bytes": torch.qint8, "float16": torch.float16, "rows": per_channel_dynamic_qconfig}
LAYERS = {
    "linear": (lambda: nn.Linear(600, 12), draw(3, 5, 600)),
    "linear-no-bias": (lambda: nn.Linear(8, 3, bias=False), draw(5, 8)),
    "lstm": (lambda: nn.LSTM(8, 6, 2, bidirectional=True, batch_first=True), draw(4, 5, 8)),
    "lstm-packed": (lambda: nn.LSTM(8, 6), PACKED),
    "gru": (lambda: nn.GRU(8, 6, 2), draw(4, 5, 8)),
    "gru-packed": (lambda: nn.GRU(8, 6, bidirectional=True), PACKED),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layer", LAYERS)
def test_layers_compute_what_torch_computes(layer: str, kind: str) -> None:
    make, x = LAYERS[layer]
    module = quantized(make(), KINDS[kind])
    theirs = module(x)
    with samerun.portable():
        ours = module(x)
    assert len(tensors(ours)) == len(tensors(theirs))
    for mine, other in zip(tensors(ours), tensors(theirs), strict=True):
        torch.testing.assert_close(mine, other, rtol=2e-5, atol=2e-6)


@pytest.mark.filterwarnings("ignore:overflow encountered")  # the reciprocal of a scale
@pytest.mark.parametrize("size", [1.0, 1e-4, 1e-30, 1e-42, 1e30, 0.0])
@pytest.mark.parametrize("shift", [0.0, -10.0, 10.0], ids=["both signs", "negative", "positive"])
def test_inputs_are_rounded_in_their_own_range(size: float, shift: float) -> None:
    layer = quantized(nn.Linear(16, 4), default_dynamic_qconfig)
    x = (draw(9, 16) + shift) * size
    with samerun.portable():
        found = layer(x).numpy()

    weight, bias = layer.weight(), layer.bias().detach().numpy()
    stored = weight.int_repr().numpy().astype(np.int64) - weight.q_zero_point()
    values = x.numpy()
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    step = (high - low) / 127  # the module asks for half of the range
    if np.float32(step) == 0 or np.isinf(np.float32(1) / np.float32(step)):
        step = 0.1
    zero, scale = round(-low / step), np.float32(max(step, 6.1e-5))
    kept = np.clip(np.rint(values * (np.float32(1) / scale)).astype(np.float64) + zero, 0, 255).astype(np.int64) - zero
    sums = (kept @ stored.T).astype(np.float32)
    assert np.array_equal(found, sums * (scale * np.float32(weight.q_scale())) + bias)


def test_no_rows_and_rows_that_are_not_finite() -> None:
    layer = quantized(nn.Linear(16, 4), torch.qint8)
    with samerun.portable():
        assert layer(torch.zeros(0, 16)).shape == (0, 4)
        for value in (float("nan"), float("inf"), -float("inf")):
            with pytest.raises(samerun.NotPortableError, match="infinite or NaN"):
                layer(torch.full((2, 16), value))
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            layer(torch.zeros(2, 15))


def test_tensors_that_are_quantised_themselves_are_refused() -> None:
    x = torch.quantize_per_tensor(draw(2, 3), 0.1, 0, torch.qint8)
    with samerun.portable(), pytest.raises(samerun.NotPortableError, match="qint8"):
        torch.relu(x)
