"""Steps of optimizers on float32 arrays; one rounding an operation. `value` is rounded to float32 first."""

from __future__ import annotations

from typing import Any

import numpy as np


def update(name: str, x: Any, y: Any, z: Any, value: float) -> Any:
    """lerp: x + (y - x) * value; addcmul: x + (y * value) * z; addcdiv: x + (y * value) / z."""
    by = np.float32(value)
    with np.errstate(all="ignore"):
        if name == "lerp":
            return x + (y - x) * by
        return x + (y * by) * z if name == "addcmul" else x + (y * by) / z
