"""Every generator that `seed_everything` knows, in the order in which they are seeded and restored.

Not here, with the reason: JAX (no global generator); PaddlePaddle and MXNet (not checked by anyone here);
imgaug (does not import under NumPy 2); Hugging Face tokenizers' dropout (cannot be seeded).
`register_rng` takes whatever is missing.
"""

from __future__ import annotations

from samerun.control.seeds import numba, numpy, python, streams, torch, without_state
from samerun.control.seeds.source import RandomSource

SOURCES: tuple[RandomSource, ...] = (
    python.SOURCE,
    numpy.SOURCE,
    torch.CPU,  # before torch's devices: see there
    torch.CUDA,
    torch.MPS,
    torch.XPU,
    torch.MTIA,
    torch.CUSTOM,
    numba.SOURCE,
    without_state.CUPY,
    without_state.OPENCV,
    without_state.POLARS,
    without_state.SENTENCEPIECE,
    without_state.TENSORFLOW,
    streams.SOURCE,
)
