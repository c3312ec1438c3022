"""Every generator that `seed_everything` knows, in the order in which they are seeded and restored.

Not here, with the reason: JAX (no global generator); PaddlePaddle and MXNet (not checked by anyone here);
imgaug (does not import under NumPy 2); Hugging Face tokenizers' dropout (cannot be seeded).
`register_rng` takes whatever is missing.
"""

from __future__ import annotations

from samerun.control.seeds import (
    cupy,
    numba,
    numpy,
    opencv,
    polars,
    python,
    sentencepiece,
    streams,
    tensorflow,
    torch_cpu,
    torch_cuda,
    torch_custom,
    torch_mps,
    torch_mtia,
    torch_xpu,
)
from samerun.control.seeds.source import Source

SOURCES: tuple[Source, ...] = (
    python.SOURCE,
    numpy.SOURCE,
    torch_cpu.SOURCE,  # before torch's devices: see there
    torch_cuda.SOURCE,
    torch_mps.SOURCE,
    torch_xpu.SOURCE,
    torch_mtia.SOURCE,
    torch_custom.SOURCE,
    numba.SOURCE,
    cupy.SOURCE,
    opencv.SOURCE,
    polars.SOURCE,
    sentencepiece.SOURCE,
    tensorflow.SOURCE,
    streams.SOURCE,
)
