"""Print a digest of what each operator that the table takes for exact makes of values with any bits."""

from __future__ import annotations

import hashlib
import warnings
from typing import Any

import numpy as np
import torch
from samerun.numerics.aten_handlers.exact import ROUND_ONCE

N = 20_001  # not a multiple of any vector
WHOLE = {torch.float64: torch.int64, torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}
OTHERS = {"x": (), "xy": (0,), "x2": (2,), "x0.3": (0.3,), "x-7.5e-30": (-7.5e-30,), "xy0.01": (0, 0.01)}
"""What stands behind the first argument; 0 is the second tensor."""


def given(dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Half of them of usual size, half any bits."""
    random = np.random.RandomState(seed)
    if dtype not in WHOLE:
        return torch.from_numpy(random.randint(-100, 100, N)).to(dtype)
    size = torch.finfo(dtype).bits // 8
    bits = torch.from_numpy(np.frombuffer(random.bytes(N * size), dtype=f"<i{size}").copy())
    x = bits.view(WHOLE[dtype]).view(dtype)
    x[: N // 2] = torch.from_numpy(random.randn(N // 2) * 10).to(dtype)
    x[:2] = torch.tensor([0.0, -0.0])
    return x


def digest(out: Any) -> str:
    """Every NaN counts as the same one."""
    if isinstance(out, (tuple, list)):
        return " ".join(map(digest, out))
    if not isinstance(out, torch.Tensor):
        return repr(out)
    if out.is_floating_point():
        out = torch.where(out.isnan(), torch.full((), float("nan"), dtype=out.dtype), out)
    return hashlib.sha256(out.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()[:16]


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for dtype in (*WHOLE, torch.int64, torch.uint8):
        x, y = given(dtype, 1), given(dtype, 2)
        for name in sorted(ROUND_ONCE):
            packet = getattr(torch.ops.aten, name)
            for overload in packet.overloads():
                operator = getattr(packet, overload)
                if overload.endswith("out") or any(a.alias_info is not None for a in operator._schema.arguments):
                    continue
                for label, others in OTHERS.items():
                    try:
                        out = operator(x, *(y if other == 0 else other for other in others))
                    except (RuntimeError, TypeError, IndexError, NotImplementedError):
                        continue  # not of these arguments
                    print(dtype, f"{name}.{overload}", label, digest(out))
        if dtype.is_floating_point:
            for mode in ("floor", "trunc"):
                print(dtype, "div", mode, digest(torch.div(x, y, rounding_mode=mode)))


if __name__ == "__main__":
    main()
