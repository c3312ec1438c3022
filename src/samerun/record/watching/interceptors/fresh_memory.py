"""Fill fresh memory, so that elements which the program never wrote are equal, or differ, on purpose.

The interceptor fills NumPy's arrays; `operator_mode.py` fills torch's tensors with the same values.
"""

from __future__ import annotations

from typing import Any

from samerun.record.config import FreshMemory
from samerun.record.trace import format as f
from samerun.record.watching.interceptor import Interceptor, wrap_attribute
from samerun.record.watching.recorder import Recorder

PATTERN_FLOAT = 2.71875  # exact in every floating dtype of torch down to float8
PATTERN_INT = 3  # small, so that a program that uses it as an index fails no more often than with garbage


def fill_uninitialized_if_possible(tensor: Any, fill: FreshMemory) -> None:
    """Fill a fresh tensor in place; autograd is not told. Dtypes that cannot be filled stay as they are."""
    import torch

    if tensor.device.type == "meta" or tensor.layout is not torch.strided or tensor.is_quantized:
        return
    if fill == "zeros":
        value: Any = 0
    elif tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        value = PATTERN_FLOAT
    else:
        value = PATTERN_INT
    try:
        tensor.fill_(value)
    except (RuntimeError, TypeError):
        pass


def torch_fills_uninitialized_memory() -> bool:
    """Does torch give fresh tensors a known value itself? Then what they hold is no accident, and is not varied."""
    import torch

    settings: Any = torch.utils.deterministic
    return torch.are_deterministic_algorithms_enabled() and bool(settings.fill_uninitialized_memory)


def record_uninitialized_read(recorder: Recorder, operator_name: str, signed_location_id: int) -> None:
    """Record that an operator reads memory that was not written; `signed_location_id` is negative for a library."""
    if recorder.count_and_should_record_first_or_power_of_two(("uninitialised", operator_name, signed_location_id)):
        by_library = int(signed_location_id < 0)
        recorder.emit(f.FRESH, name=operator_name, location_id=abs(signed_location_id), inputs=by_library, phase=f.HOST)


def fill_numpy_empty_if_configured(recorder: Recorder, numpy: Any) -> None:
    """Fill what `numpy.empty` and `numpy.empty_like` return."""
    fill = recorder.config.fresh_memory
    if fill is None:
        return

    def wrap_empty(original: Any) -> Any:
        def empty(*args: Any, **kwargs: Any) -> Any:
            array = original(*args, **kwargs)
            if array.dtype.kind in "biufc":
                varied = fill == "pattern" and recorder.current_line_is_selected_for_variation("memory")
                value = 0 if not varied else PATTERN_FLOAT if array.dtype.kind in "fc" else PATTERN_INT
                try:
                    array[...] = value
                except (ValueError, TypeError):
                    pass
                recorder.emit_host_event(f.FRESH, "numpy.empty", only_at_user_code=True, thin_repeats=True)
            return array

        return empty

    for name in ("empty", "empty_like"):
        wrap_attribute(numpy, name, wrap_empty)


NUMPY_EMPTY = Interceptor("fresh-memory", "numpy", fill_numpy_empty_if_configured)
