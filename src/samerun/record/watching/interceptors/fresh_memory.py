"""Fill fresh NumPy arrays, so that elements which the program never wrote are equal, or differ, on purpose."""

from __future__ import annotations

from typing import Any

from samerun.record.trace import format as f
from samerun.record.watching.interceptor import Interceptor, wrap_attribute
from samerun.record.watching.memory_fill import PATTERN_FLOAT, PATTERN_INT
from samerun.record.watching.recorder import Recorder


def install_numpy_empty_fill(recorder: Recorder, numpy: Any) -> None:
    """Fill what `numpy.empty` and `numpy.empty_like` return."""
    fill = recorder.config.fresh_memory
    if fill is None:
        return

    def wrap_empty(original: Any) -> Any:
        def empty(*args: Any, **kwargs: Any) -> Any:
            array = original(*args, **kwargs)
            if array.dtype.kind in "biufc":
                varied = fill == "pattern" and recorder.variation_applies_here("memory")
                value = 0 if not varied else PATTERN_FLOAT if array.dtype.kind in "fc" else PATTERN_INT
                try:
                    array[...] = value
                except (ValueError, TypeError):
                    pass
                recorder.emit_host_event(f.FRESH, "numpy.empty", user_only=True, thin=True)
            return array

        return empty

    for name in ("empty", "empty_like"):
        wrap_attribute(numpy, name, wrap_empty)


INTERCEPTOR = Interceptor("fresh-memory", "numpy", install_numpy_empty_fill)
