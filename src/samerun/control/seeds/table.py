"""Every generator that `seed_everything` knows, in the order in which they are seeded and restored.

Not here, with the reason: JAX (no global generator); PaddlePaddle and MXNet (not checked by anyone here);
imgaug (does not import under NumPy 2); Hugging Face tokenizers' dropout (cannot be seeded).
`register_rng` takes whatever is missing.
"""

from __future__ import annotations

from samerun.control.random_source import RandomSource
from samerun.control.seeds import libraries, streams, torch

SOURCES: tuple[RandomSource, ...] = (
    libraries.PYTHON,
    libraries.NUMPY,
    torch.CPU,  # before torch's devices: see there
    torch.CUDA,
    torch.MPS,
    torch.XPU,
    torch.MTIA,
    torch.CUSTOM,
    libraries.NUMBA,
    libraries.CUPY,
    libraries.OPENCV,
    libraries.POLARS,
    libraries.SENTENCEPIECE,
    libraries.TENSORFLOW,
    streams.SOURCE,
)
