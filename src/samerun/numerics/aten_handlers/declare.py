"""What members of the table share: how an operator is declared and refused, and how random numbers are drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode

from samerun.numerics.kernels import library
from samerun.numerics.kernels.random import advance_generator

Handler = Callable[..., Any]
"""Takes what the operator's functional overload takes; sees plain tensors, with no mode in force."""
Members = dict[str, Handler]
"""Operator ("aten::exp") or overload ("aten::add.Tensor") -> handler. The forms that write into an argument
(`exp_`, `exp.out`) follow from it."""

Scalar = int | float

HALF_TYPES = (torch.bfloat16, torch.float16)


def split_names(text: str) -> list[str]:
    """The names in a text, which blanks and line ends separate."""
    return text.split()


class NoPortableKernel(Exception):
    """Raised where an operator has no portable kernel for what it got. `reason`: a sentence; `hint`: what to do."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason, hint)
        self.reason = reason
        self.hint = hint


def require_cpu_tensors(handler: Handler) -> Handler:
    """`handler`, which refuses tensors of a CUDA device: they are moved to the CPU then (`dispatch.cpu_fallback`)."""

    def run(*args: Any, **kwargs: Any) -> Any:
        if any(isinstance(value, Tensor) and not value.is_cpu for value in (*args, *kwargs.values())):
            raise NoPortableKernel("CUDA.", "It runs on the CPU: tensor.cpu().")
        return handler(*args, **kwargs)

    return run


def may_fuse_operators_into_one_c_call() -> bool:
    """Whether `portable()` is the one mode of this thread, and the library computes.

    Then several operators may be one call of C. Others that look at operators must see each of them, with its result.
    """
    return (
        torch._C._len_torch_dispatch_stack() == 1
        and getattr(_get_current_dispatch_mode(), "is_portable", False)
        and not torch._C._len_torch_function_stack()
        and peek_interpreter_stack() is None
        and library.is_available()
    )


def divide_correctly_rounded(x: Tensor, divisor: Any) -> Tensor:
    """x / divisor, rounded once.

    torch's CUDA kernels multiply by the reciprocal of a number; by a tensor they divide.
    """
    if not library.is_off_cpu(x) or (isinstance(divisor, Tensor) and (divisor.dim() or library.is_off_cpu(divisor))):
        return torch.div(x, divisor)
    dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    return torch.div(x, torch.full((), float(divisor), dtype=dtype, device=x.device))


def to_floating(x: Tensor) -> Tensor:
    """x itself, or integers and booleans in the default floating type, as torch's functions take them."""
    return x if x.is_floating_point() else x.to(torch.get_default_dtype())


# Half types are for storage: handlers are written once, for float32 and float64, and round to half once, at the end.
# So a result in half precision is the float32 result rounded, whatever steps the handler takes.
def widen_half_inputs(handler: Handler) -> Handler:
    """bfloat16 and float16 are storage types: the handler sees float32, and its results are rounded once."""

    def widened_handler(*args: Any, **kwargs: Any) -> Any:
        output_dtype = None
        for value in args:
            if isinstance(value, Tensor) and value.dtype in HALF_TYPES:
                output_dtype = value.dtype
                break
        if output_dtype is None:
            return handler(*args, **kwargs)
        if any(isinstance(value, Tensor) and value.dtype in (torch.float32, torch.float64) for value in args):
            output_dtype = torch.float32  # torch promotes
        out = handler(*map(_half_to_float32, args), **{name: _half_to_float32(value) for name, value in kwargs.items()})
        if isinstance(out, Tensor):
            return _cast_if_float32_tensor(out, output_dtype)
        return tuple(_cast_if_float32_tensor(item, output_dtype) for item in out)

    return widened_handler


def _half_to_float32(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.dtype in HALF_TYPES else value


def _cast_if_float32_tensor(out: Any, target_dtype: torch.dtype) -> Any:
    return out.to(target_dtype) if isinstance(out, Tensor) and out.dtype is torch.float32 else out


Function = Callable[..., Tensor]


def in_float64(function: Function) -> Callable[..., Any]:
    """The function of tensors and numbers, computed in float64 and rounded once to the type that torch promotes to."""

    def handler(*values: Any, **settings: Any) -> Tensor:
        tensors = [value for value in values if isinstance(value, Tensor)]
        dtype = torch.result_type(*values) if len(values) == 2 else tensors[0].dtype
        if not dtype.is_floating_point:
            dtype = torch.get_default_dtype()
        wide = [torch.as_tensor(value, dtype=torch.float64, device=tensors[0].device) for value in values]
        return function(*torch.broadcast_tensors(*wide), **settings).to(dtype)  # type: ignore[no-untyped-call]

    return handler


def horner(x: Tensor, coefficients_highest_first: tuple[float, ...]) -> Tensor:
    total = torch.zeros_like(x)
    for term in coefficients_highest_first:
        total = total * x + term
    return total


Generator = torch.Generator | None


class Draw(NamedTuple):
    """What the makers of numbers take behind a shape."""

    seed: int
    draw_number: int
    device: torch.device


def advance_generator_for_draw(generator: Generator, device_name: torch.device | str | None) -> Draw:
    """Move the generator on by one draw; returns where that draw lies in its stream."""
    device = torch.device(device_name or "cpu")
    if generator is not None and generator.device.type not in ("cpu", "cuda"):
        raise NoPortableKernel(f"a generator on {generator.device}.", "Use a CPU generator.")
    if device.type == "cuda" and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise NoPortableKernel(
            "a CUDA graph: its draws would all be the same.", "Draw outside, and copy into the graph."
        )
    return Draw(*advance_generator(generator), device)


def copy_reshaped_and_cast_(x: Tensor, values: Tensor) -> Tensor:
    """x with these values, which are rounded to its type."""
    return x.copy_(values.reshape(x.shape))


def require_supported_dtype_and_device(kwargs: dict[str, Any]) -> torch.dtype:
    """The type that is asked for. Raises NoPortableKernel for complex ones and for devices without kernels."""
    device = torch.device(kwargs.get("device") or "cpu")
    if device.type not in ("cpu", "cuda"):
        raise NoPortableKernel(f"device={device}.", "Portable kernels run on the CPU and on CUDA devices.")
    dtype: torch.dtype = kwargs.get("dtype") or torch.get_default_dtype()
    if dtype.is_complex:
        raise NoPortableKernel(f"{dtype}.", "Draw real and imaginary parts.")
    return dtype


def require_floating_or_complex_dtype(dtype: torch.dtype) -> None:
    """Raises NotImplementedError, in the place of which the program sees torch's error, for integers and booleans."""
    if not dtype.is_floating_point and not dtype.is_complex:
        raise NotImplementedError(f"not implemented for {dtype}")


def scale_uniform(u: Tensor, low: float, high: float) -> Tensor:
    """low + u * (high - low)."""
    return u if (low, high) == (0.0, 1.0) else torch.add(torch.mul(u, high - low), low)


def scale_normal(z: Tensor, mean: Any, std: Any) -> Tensor:
    """mean + z * std."""
    if isinstance(mean, float | int) and isinstance(std, float | int) and (mean, std) == (0.0, 1.0):
        return z
    return torch.add(torch.mul(z, std), mean)
