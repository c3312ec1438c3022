"""Random numbers by Philox4x32-10, keyed by the generator's seed and the position of the draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from samerun.numerics.aten_handlers.declare import (
    Generator,
    Members,
    NoPortableKernel,
    advance_generator_for_draw,
    copy_reshaped_and_cast_,
    divide_correctly_rounded,
    require_cpu_tensors,
    require_floating_or_complex_dtype,
    require_supported_dtype_and_device,
    scale_normal,
    scale_uniform,
)
from samerun.numerics.kernels import library, sums
from samerun.numerics.kernels import random as draws
from samerun.numerics.kernels.functions import log1p


def _is_complex(dtype: torch.dtype | None) -> bool:
    return dtype is not None and dtype.is_complex


def _complex_memory(size: Sequence[int], kwargs: dict[str, Any]) -> Tensor:
    """Memory on the CPU for what is drawn. Raises NoPortableKernel for another device."""
    if torch.device(kwargs.get("device") or "cpu").type != "cpu":
        raise NoPortableKernel(f"{kwargs['dtype']} on {kwargs['device']}.", "Draw on the CPU, and move it.")
    return torch.empty(tuple(size), dtype=kwargs["dtype"])


def uniform_(x: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Generator = None) -> Tensor:
    """low + u * (high - low)."""
    require_floating_or_complex_dtype(x.dtype)
    if x.is_complex():
        uniform_(torch.view_as_real(x), low, high, generator=generator)
        return x
    if low > high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low:g} > to={high:g}")
    return copy_reshaped_and_cast_(
        x, scale_uniform(draws.uniform((x.numel(),), *advance_generator_for_draw(generator, x.device)), low, high)
    )


def rand(size: Sequence[int], *, generator: Generator = None, **kwargs: Any) -> Tensor:
    if _is_complex(kwargs.get("dtype")):
        return uniform_(_complex_memory(size, kwargs), generator=generator)
    dtype = require_supported_dtype_and_device(kwargs)
    require_floating_or_complex_dtype(dtype)
    u = draws.uniform(tuple(size), *advance_generator_for_draw(generator, kwargs.get("device")))
    return torch.empty(tuple(size), dtype=dtype, device=u.device).copy_(u)


def _kwargs_with_default_dtype_and_device(x: Tensor, kwargs: dict[str, Any]) -> dict[str, Any]:
    """What a draw like x takes: x's type and device, unless others are asked for."""
    return {**kwargs, "dtype": kwargs.get("dtype") or x.dtype, "device": kwargs.get("device") or x.device}


def rand_like(x: Tensor, *, generator: Generator = None, **kwargs: Any) -> Tensor:
    return rand(x.shape, generator=generator, **_kwargs_with_default_dtype_and_device(x, kwargs))


def normal_(x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator = None) -> Tensor:
    """mean + z * std. Complex numbers: both parts, each with std / sqrt(2)."""
    require_floating_or_complex_dtype(x.dtype)
    if not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    if x.is_complex():
        normal_(torch.view_as_real(x), mean, std / math.sqrt(2.0), generator=generator)
        return x
    return copy_reshaped_and_cast_(
        x, scale_normal(draws.normal((x.numel(),), *advance_generator_for_draw(generator, x.device)), mean, std)
    )


def randn(size: Sequence[int], *, generator: Generator = None, **kwargs: Any) -> Tensor:
    if _is_complex(kwargs.get("dtype")):
        return normal_(_complex_memory(size, kwargs), generator=generator)
    dtype = require_supported_dtype_and_device(kwargs)
    require_floating_or_complex_dtype(dtype)
    z = draws.normal(tuple(size), *advance_generator_for_draw(generator, kwargs.get("device")))
    return torch.empty(tuple(size), dtype=dtype, device=z.device).copy_(z)


def randn_like(x: Tensor, *, generator: Generator = None, **kwargs: Any) -> Tensor:
    return randn(x.shape, generator=generator, **_kwargs_with_default_dtype_and_device(x, kwargs))


def normal(mean: Any, std: Any = 1.0, *, generator: Generator = None) -> Tensor:
    """Of the broadcast shape of mean and std, one of which is a tensor."""
    if not isinstance(std, Tensor) and not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
    if isinstance(std, Tensor) and not bool((std >= 0).all()):
        raise RuntimeError("normal expects all elements of std >= 0.0")
    like = next((each for each in (mean, std) if isinstance(each, Tensor)), torch.zeros(()))
    require_floating_or_complex_dtype(like.dtype)
    sizes = (each.shape for each in (mean, std) if isinstance(each, Tensor))
    shape = torch.broadcast_shapes(*sizes)  # type: ignore[no-untyped-call]
    z = draws.normal(tuple(shape), *advance_generator_for_draw(generator, like.device))
    return scale_normal(z, mean, std).to(torch.result_type(mean, std))


def normal_with_number_mean_and_std(
    mean: float, std: float, size: Sequence[int], *, generator: Generator = None, **kwargs: Any
) -> Tensor:
    memory = torch.empty(tuple(size), dtype=require_supported_dtype_and_device(kwargs), device=kwargs.get("device"))
    return normal_(memory, mean, std, generator=generator)


def randint(high: int, size: Sequence[int], *, generator: Generator = None, **kwargs: Any) -> Tensor:
    return randint_between(0, high, size, generator=generator, **kwargs)


def randint_between(low: int, high: int, size: Sequence[int], *, generator: Generator = None, **kwargs: Any) -> Tensor:
    dtype = require_supported_dtype_and_device(
        {"dtype": torch.int64, **{name: value for name, value in kwargs.items() if value is not None}}
    )
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    if not dtype.is_floating_point:
        least, most = (0, 1) if dtype is torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
        if low < least or high - 1 > most:
            raise RuntimeError(f"random_: from {low} to {high - 1} is out of bounds for {dtype}")
    values = draws.randint(low, high, tuple(size), *advance_generator_for_draw(generator, kwargs.get("device")))
    return values.to(dtype)


def randint_like(x: Tensor, *bounds: Any, generator: Generator = None, **kwargs: Any) -> Tensor:
    low, high = (int(bound) for bound in ((0, *bounds) if len(bounds) == 1 else bounds))
    return randint_between(low, high, x.shape, generator=generator, **_kwargs_with_default_dtype_and_device(x, kwargs))


_LARGEST_EXACT_INTEGER = {
    torch.float32: 1 << 24,
    torch.float64: 1 << 53,
    torch.float16: 1 << 11,
    torch.bfloat16: 1 << 8,
}


def random_(x: Tensor, *bounds: int | None, generator: Generator = None) -> Tensor:
    low, high = (0, *bounds) if len(bounds) == 1 else (bounds or (0, None))
    if high is None:
        if x.dtype is torch.bool:
            high = 2
        elif x.is_floating_point():
            high = _LARGEST_EXACT_INTEGER[x.dtype] + 1
        else:
            high = torch.iinfo(x.dtype).max + (x.dtype is not torch.int64)
    values = draws.randint(int(low or 0), int(high), tuple(x.shape), *advance_generator_for_draw(generator, x.device))
    return copy_reshaped_and_cast_(x, values)


def randperm(n: int, *, generator: Generator = None, **kwargs: Any) -> Tensor:
    dtype = kwargs.get("dtype") or torch.int64
    return draws.randperm(n, *advance_generator_for_draw(generator, kwargs.get("device"))).to(dtype)


def bernoulli_(x: Tensor, p: Any = 0.5, *, generator: Generator = None) -> Tensor:
    """1 where u < p. p: a number, or a tensor that broadcasts."""
    if not isinstance(p, Tensor) and not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")
    u = draws.uniform(tuple(x.shape), *advance_generator_for_draw(generator, x.device))
    if isinstance(p, Tensor) and not bool(((p >= 0) & (p <= 1)).all()) and not library.is_off_cpu(p):
        raise RuntimeError("bernoulli_ expects p to be in [0, 1]")
    return x.copy_(torch.lt(u, p if isinstance(p, Tensor) else torch.full((), p, dtype=torch.float32, device=x.device)))


def bernoulli(x: Tensor, p: Any = None, *, generator: Generator = None) -> Tensor:
    """Like x, with chances p; or with chances x."""
    require_floating_or_complex_dtype(torch.float32 if p is not None else x.dtype)
    return bernoulli_(torch.empty_like(x), x if p is None else p, generator=generator)


def dropout(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """(x * mask) * (1 / (1 - p)), mask = u < 1 - p."""
    if not train:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    mask = bernoulli(torch.empty(x.shape, device=x.device), 1 - p).bool()
    scale = 0.0 if p == 1 else 1.0 / (1.0 - p)
    return torch.mul(torch.mul(x, mask), scale), mask


def dropout_backward(grad: Tensor, mask: Tensor, scale: float) -> Tensor:
    return torch.mul(torch.mul(grad, mask), scale)


def multinomial(p: Tensor, n: int, replacement: bool = False, *, generator: Generator = None) -> Tensor:
    """With replacement: the first place where the running sum of p exceeds u * sum. Without: the n largest p / e,
    e = -log(1 - u), ties by lower index.
    """
    if n <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and n > p.shape[-1]:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    rows = p.reshape(-1, p.shape[-1]).float()
    if bool((rows < 0).any()) or not bool(torch.isfinite(rows).all()):
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if p.dim() not in (1, 2) or not p.is_floating_point() or bool((sums.sum(rows, 1) <= 0).any()):
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    if replacement:
        running = sums.cumsum(rows, 1)
        u = draws.uniform((rows.shape[0], n), *advance_generator_for_draw(generator, p.device))
        found = torch.searchsorted(running, torch.mul(u, running[:, -1:]), right=True)
        found = torch.clamp(found, max=rows.shape[1] - 1)
    else:
        u = draws.uniform(tuple(rows.shape), *advance_generator_for_draw(generator, p.device))
        keys = torch.div(rows, torch.neg(log1p(torch.neg(u))))
        keys = torch.where(rows > 0, keys, torch.full_like(keys, -1.0))
        found = torch.sort(keys, dim=1, descending=True, stable=True)[1][:, :n]
    return found.reshape(*p.shape[:-1], n)


def exponential_(x: Tensor, lambd: float = 1.0, *, generator: Generator = None) -> Tensor:
    """-log(1 - u) / lambda."""
    require_floating_or_complex_dtype(x.dtype)
    if not lambd > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd:g}")
    u = draws.uniform((x.numel(),), *advance_generator_for_draw(generator, x.device))
    return copy_reshaped_and_cast_(x, divide_correctly_rounded(torch.neg(log1p(torch.neg(u))), lambd))


def _make_out_of_place(fill_: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """What `fill_` makes of memory, in new memory."""
    return lambda x, *args, **kwargs: fill_(torch.empty_like(x), *args, **kwargs)


_WITH_GENERATOR: dict[str, Callable[..., Tensor]] = {
    "rand": rand,
    "randn": randn,
    "rand_like": rand_like,
    "randn_like": randn_like,
    "randperm": randperm,
    "bernoulli_": bernoulli_,
    "bernoulli": bernoulli,
    "uniform_": uniform_,
    "normal_": normal_,
    "normal": normal,
    "normal.float_float": normal_with_number_mean_and_std,
    "normal.float_float_out": normal_with_number_mean_and_std,
    "random_": random_,
    "exponential_": exponential_,
    "multinomial": multinomial,
    "randint": randint,
    "randint.generator": randint,
    "randint.low": randint_between,
    "randint.low_generator": randint_between,
    "randint_like": randint_like,
    "uniform": _make_out_of_place(uniform_),
    "normal_functional": _make_out_of_place(normal_),
    "normal.out": _make_out_of_place(normal_),
    "random": _make_out_of_place(random_),
    "exponential": _make_out_of_place(exponential_),
}

MEMBERS: Members = {
    **{f"aten::{name}": handler for name, handler in _WITH_GENERATOR.items()},
    "aten::native_dropout": dropout,
    "aten::native_dropout_backward": dropout_backward,
}
ON_COMPLEX: Members = {
    f"aten::{name}": require_cpu_tensors(_WITH_GENERATOR[name])
    for name in ("rand_like", "randn_like", "normal_", "uniform_")
}
"""Those that take a complex tensor: parts are drawn as twice as many real numbers."""
