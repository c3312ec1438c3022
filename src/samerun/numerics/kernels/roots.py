"""Square roots of float32 and float64, rounded once; bfloat16 and float16 are widened, and the float is rounded again.

torch's own CPU kernel may be that of MKL, which rounds some roots otherwise on some processors.
"""

from __future__ import annotations

import numpy as np
import torch

from samerun.numerics.kernels import library
from samerun.numerics.kernels.tensors import by_reference, compute_type, dense

_roots = library.function("samerun_roots", "vippl")


def sqrt(x: torch.Tensor) -> torch.Tensor:
    """The square root of every element; NaN below 0, and -0.0 of -0.0.

    Raises SamerunError for types that are not floating.
    """
    wide = dense(x, compute_type("sqrt", x))
    if library.computes(x):
        out = torch.empty_like(wide)
        _roots.on(wide)(wide.dtype is torch.float64, wide.data_ptr(), out.data_ptr(), wide.numel())
    else:
        with np.errstate(invalid="ignore"):
            out = by_reference(np.sqrt, wide.reshape(-1)).reshape(wide.shape)
    return out if x.dtype == out.dtype else out.to(x.dtype)
