"""Complex numbers, as pairs of real ones, and Fourier transforms.

A sum adds the parts. (a + bi)(c + di) = (ac - bd) + (ad + bc)i, each product and sum rounded. A quotient divides c and
d by s, the larger of |c| and |d| (oc, od), and takes (a oc + b od) / e and (b oc - a od) / e, e = c oc + d od. Sums
are class S, products of matrices class M, in each part. Functions of the parts are correctly rounded ones.

A Fourier transform computes in float64 and rounds once: a length that is a product p m becomes p transforms of length
m, whose values are turned, and transforms of length p (Cooley and Tukey, 1965), p the smallest prime factor; up to
64 and for primes up to 1024 it is a product with the matrix of sines and cosines; larger primes become a convolution
of the next power of two (Bluestein, 1970). Its error is about 1e-15 of the norm of the input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from samerun.numerics.aten_handlers.declare import Members, NoPortableKernel, require_cpu_tensors, split_names
from samerun.numerics.aten_handlers.exact import MOVES
from samerun.numerics.kernels import functions, sums
from samerun.numerics.kernels.elementwise import sqrt
from samerun.numerics.kernels.linear_algebra import matmul

Parts = tuple[Tensor, Tensor]
_REAL_OF = {torch.complex64: torch.float32, torch.complex128: torch.float64}


def _parts(x: Any, like: Tensor | None = None) -> Parts:
    """Real and imaginary part; of a number as tensors of no dimension."""
    if isinstance(x, Tensor) and x.is_complex():
        pair = torch.view_as_real(x.resolve_conj().resolve_neg())
        return pair[..., 0], pair[..., 1]
    if not isinstance(x, Tensor):
        assert like is not None
        dtype = _REAL_OF.get(like.dtype, like.dtype)
        return torch.tensor(complex(x).real, dtype=dtype), torch.tensor(complex(x).imag, dtype=dtype)
    return x, torch.zeros_like(x)


def _complex_from_parts(parts: Parts) -> Tensor:
    return torch.complex(*(part.contiguous() for part in torch.broadcast_tensors(*parts)))  # type: ignore[no-untyped-call]


def _promoted_parts_of_both(a: Any, b: Any) -> tuple[Parts, Parts]:
    """Both in the type that torch promotes them to."""
    dtype = _REAL_OF[torch.result_type(a, b)]
    like = a if isinstance(a, Tensor) else b
    first, second = ((re.to(dtype), im.to(dtype)) for re, im in (_parts(a, like), _parts(b, like)))
    return first, second


def _multiply(x: Parts, y: Parts) -> Parts:
    (a, b), (c, d) = x, y
    return torch.sub(torch.mul(a, c), torch.mul(b, d)), torch.add(torch.mul(a, d), torch.mul(b, c))


def _divide(x: Parts, y: Parts) -> Parts:
    (a, b), (c, d) = x, y
    s = torch.maximum(c.abs(), d.abs())
    oc, od = torch.div(c, s), torch.div(d, s)
    e = torch.add(torch.mul(c, oc), torch.mul(d, od))
    real = torch.div(torch.add(torch.mul(a, oc), torch.mul(b, od)), e)
    return real, torch.div(torch.sub(torch.mul(b, oc), torch.mul(a, od)), e)


def mul(a: Any, b: Any) -> Tensor:
    return _complex_from_parts(_multiply(*_promoted_parts_of_both(a, b)))


def div(a: Any, b: Any) -> Tensor:
    return _complex_from_parts(_divide(*_promoted_parts_of_both(a, b)))


def add(a: Any, b: Any, *, alpha: Any = 1) -> Tensor:
    x, y = _promoted_parts_of_both(a, b)
    if alpha != 1:
        y = _multiply(_parts(alpha, y[0]), y)
    return _complex_from_parts((torch.add(x[0], y[0]), torch.add(x[1], y[1])))


def sub(a: Any, b: Any, *, alpha: Any = 1) -> Tensor:
    x, y = _promoted_parts_of_both(a, b)
    if alpha != 1:
        y = _multiply(_parts(alpha, y[0]), y)
    return _complex_from_parts((torch.sub(x[0], y[0]), torch.sub(x[1], y[1])))


def _of_each_part(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def handler(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        re, im = _parts(x)
        return _complex_from_parts((function(re, *args, **kwargs), function(im, *args, **kwargs)))

    return handler


def _make_reduction_of_each_part(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def reduce(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
        if dtype is not None and dtype not in _REAL_OF:
            raise NoPortableKernel(f"dtype={dtype}.")
        given = x if dtype is None else x.to(dtype)
        return _of_each_part(lambda part: function(part, dim or None, keepdim))(given)

    return reduce


def absolute(x: Tensor) -> Tensor:
    return functions.hypot(*_parts(x))


def angle(x: Tensor) -> Tensor:
    re, im = _parts(x)
    return functions.atan2(im, re)


def exp(x: Tensor) -> Tensor:
    """e^a (cos(b), sin(b)); e^a alone where b is 0."""
    re, im = _parts(x)
    size = functions.exp(re)
    real = torch.mul(size, functions.cos(im))
    return _complex_from_parts((real, torch.where(im == 0, im, torch.mul(size, functions.sin(im)))))


def log(x: Tensor) -> Tensor:
    return _complex_from_parts((functions.log(absolute(x)), angle(x)))


def square_root(x: Tensor) -> Tensor:
    """t = sqrt((|a| + |x|) / 2); (t, b / 2t) right of 0, (|b| / 2t, t with the sign of b) left of it."""
    re, im = _parts(x)
    t = sqrt(torch.mul(torch.add(re.abs(), absolute(x)), 0.5))
    other = torch.where(t == 0, t, torch.div(im.abs(), torch.add(t, t)))
    return _complex_from_parts((torch.where(re >= 0, t, other), torch.copysign(torch.where(re >= 0, other, t), im)))


def reciprocal(x: Tensor) -> Tensor:
    return div(torch.ones_like(x), x)


def square(x: Tensor) -> Tensor:
    return mul(x, x)


def power(x: Any, y: Any) -> Tensor:
    """x^2 and x^1 by products; else exp(y log(x)), 0 of 0."""
    if not isinstance(y, Tensor) and y in (1, 2):
        return x.clone() if y == 1 else mul(x, x)
    if not isinstance(y, Tensor) and y == 0:
        return torch.ones_like(x)
    base = x if isinstance(x, Tensor) else torch.full((), x, dtype=y.dtype)
    wide = base if base.is_complex() else base.to(torch.result_type(base, y))
    found = exp(mul(log(wide), y))
    zero = torch.full((), 0, dtype=found.dtype)
    is_zero = (absolute(wide) == 0).expand(found.shape)
    exponent = y if isinstance(y, Tensor) else torch.full((), y, dtype=found.dtype)
    one = torch.where(exponent == 0, torch.ones_like(zero), zero)
    return torch.where(is_zero, one, found)


def sign(x: Tensor) -> Tensor:
    """x / |x|; 0 of 0."""
    re, im = _parts(x)
    size = absolute(x)
    size = torch.where(size == 0, torch.ones_like(size), size)
    return _complex_from_parts((torch.div(re, size), torch.div(im, size)))


def polar(size: Tensor, turned: Tensor) -> Tensor:
    return _complex_from_parts((torch.mul(size, functions.cos(turned)), torch.mul(size, functions.sin(turned))))


def complex_matmul(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype is not b.dtype or a.shape[-1] != b.shape[-2] or a.dim() != b.dim():
        raise RuntimeError(f"expected matrices that can be multiplied, got {tuple(a.shape)} and {tuple(b.shape)}")
    (x, y), (u, v) = ((part.contiguous() for part in _parts(each)) for each in (a, b))
    return _complex_from_parts((torch.sub(matmul(x, u), matmul(y, v)), torch.add(matmul(x, v), matmul(y, u))))


def complex_addmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    found = complex_matmul(a, b)
    found = found if alpha == 1 else mul(found, alpha)
    return found if beta == 0 else add(found, x if beta == 1 else mul(x, beta))


def dot(a: Tensor, b: Tensor) -> Tensor:
    if a.dim() != 1 or a.shape != b.shape:
        raise RuntimeError(f"dot: expected two 1-D tensors of one size, got {tuple(a.shape)} and {tuple(b.shape)}")
    return complex_matmul(a[None], b[:, None]).reshape(())


# --- Fourier transforms, of parts in float64 along the last dimension
def _twiddle_factors(steps: Tensor, n: int) -> Parts:
    """cos and sin of -2 pi steps / n, of steps from 0 to n - 1."""
    angle = torch.mul(torch.remainder(steps, n).to(torch.float64), -2 * math.pi / n)
    return functions.cos(angle), functions.sin(angle)


@lru_cache(64)
def _fourier_matrix(n: int) -> Parts:
    k = torch.arange(n)
    return _twiddle_factors(k[:, None] * k, n)


def _smallest_prime_factor(n: int) -> int:
    return next((p for p in range(2, math.isqrt(n) + 1) if n % p == 0), n)


def _multiply_by_fourier_matrix(x: Parts, n: int) -> Parts:
    (a, b), (c, s) = x, _fourier_matrix(n)
    flat = [each.reshape(-1, n).contiguous() for each in (a, b)]
    real = torch.sub(matmul(flat[0], c), matmul(flat[1], s))
    imaginary = torch.add(matmul(flat[0], s), matmul(flat[1], c))
    return real.reshape(a.shape), imaginary.reshape(a.shape)


def _fft_along_last_dim(x: Parts) -> Parts:
    n = x[0].shape[-1]
    p = _smallest_prime_factor(n)
    if n <= 64 or (p == n and n <= 1024):
        return _multiply_by_fourier_matrix(x, n)
    if p == n:
        return _bluestein_fft_along_last_dim(x)
    m = n // p
    shape = x[0].shape[:-1]
    parts = tuple(each.reshape(*shape, m, p).mT.contiguous() for each in x)
    turned = _multiply(
        _fft_along_last_dim((parts[0], parts[1])), _twiddle_factors(torch.arange(p)[:, None] * torch.arange(m), n)
    )
    across = _multiply_by_fourier_matrix((turned[0].mT.contiguous(), turned[1].mT.contiguous()), p)
    return across[0].mT.reshape(*shape, n), across[1].mT.reshape(*shape, n)


def _bluestein_fft_along_last_dim(x: Parts) -> Parts:
    n = x[0].shape[-1]
    size = 1 << (2 * n - 1).bit_length()
    k = torch.arange(n)
    chirp = _twiddle_factors(k * k, 2 * n)
    a = _multiply(x, chirp)
    pad = [torch.cat([each, each.new_zeros(*each.shape[:-1], size - n)], -1) for each in a]
    back = chirp[0], torch.neg(chirp[1])
    kernel = [torch.cat([each, each.new_zeros(size - 2 * n + 1), each[1:].flip(0)]) for each in back]
    both = _multiply(_fft_along_last_dim((pad[0], pad[1])), _fft_along_last_dim((kernel[0], kernel[1])))
    real, imaginary = _fft_along_last_dim((both[0], torch.neg(both[1])))  # the inverse: conjugated before and after
    found = torch.div(real, float(size))[..., :n], torch.neg(torch.div(imaginary, float(size)))[..., :n]
    return _multiply(found, chirp)


def _unscaled_fft_in_float64(x: Parts, dims: Sequence[int], forward: bool) -> Parts:
    re, im = (part.to(torch.float64) for part in x)
    for dim in dims:
        if re.shape[dim] == 0:
            raise RuntimeError(f"Invalid number of data points ({re.shape[dim]}) specified")
        turned = re.movedim(dim, -1), im.movedim(dim, -1) if forward else torch.neg(im.movedim(dim, -1))
        re, im = _fft_along_last_dim(turned)
        re, im = re.movedim(-1, dim), (im if forward else torch.neg(im)).movedim(-1, dim)
    return re, im


def _normalize(x: Parts, normalization: int, count: int) -> Parts:
    """0: as it is, 1: / sqrt(count), 2: / count."""
    if normalization == 0:
        return x
    by = float(count) if normalization == 2 else math.sqrt(count)
    return torch.div(x[0], by), torch.div(x[1], by)


def _num_values_along(x: Tensor, dims: Sequence[int]) -> int:
    return math.prod(x.shape[dim] for dim in dims)


def fft_c2c(x: Tensor, dim: Sequence[int], normalization: int, forward: bool) -> Tensor:
    found = _normalize(
        _unscaled_fft_in_float64(_parts(x), list(reversed(dim)), forward), normalization, _num_values_along(x, dim)
    )
    return _complex_from_parts(found).to(x.dtype)


def fft_r2c(x: Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Tensor:
    if x.dtype not in (torch.float32, torch.float64):
        raise NoPortableKernel(f"{x.dtype}.", "It has one for float32 and float64.")
    re, im = _normalize(
        _unscaled_fft_in_float64(_parts(x), list(reversed(dim)), True), normalization, _num_values_along(x, dim)
    )
    if onesided:
        half = x.shape[dim[-1]] // 2 + 1
        re, im = re.narrow(dim[-1], 0, half), im.narrow(dim[-1], 0, half)
    return _complex_from_parts((re, im)).to(torch.complex128 if x.dtype is torch.float64 else torch.complex64)


def fft_c2r(x: Tensor, dim: Sequence[int], normalization: int, last_dim_size: int) -> Tensor:
    """Behind the middle lies the conjugate of what lies before it; imaginary parts that must be 0 are left out."""
    last, half = dim[-1], last_dim_size // 2 + 1
    re, im = _unscaled_fft_in_float64(_parts(x), dim[:-1], False)
    re, im = (part.movedim(last, -1)[..., :half].contiguous() for part in (re, im))
    im[..., 0] = 0
    if last_dim_size % 2 == 0:
        im[..., half - 1] = 0
    tail = slice(1, half - 1 if last_dim_size % 2 == 0 else half)
    re = torch.cat([re, re[..., tail].flip(-1)], -1)
    im = torch.cat([im, torch.neg(im[..., tail].flip(-1))], -1)
    real = _fft_along_last_dim((re, torch.neg(im)))[0].movedim(-1, last)
    count = _num_values_along(real, dim)
    return _normalize((real, real), normalization, count)[0].to(_REAL_OF[x.dtype])


FROM_REAL: Members = {"aten::_fft_r2c": require_cpu_tensors(fft_r2c), "aten::polar": require_cpu_tensors(polar)}
"""What makes complex tensors of real ones."""
MEMBERS: Members = {
    "aten::mul": mul, "aten::multiply": mul, "aten::div": div, "aten::true_divide": div, "aten::add": add,
    "aten::sub": sub, "aten::rsub": lambda a, b, alpha=1: sub(b, a, alpha=alpha), "aten::abs": absolute,
    "aten::angle": angle, "aten::exp": exp, "aten::log": log, "aten::sqrt": square_root, "aten::square": square,
    "aten::reciprocal": reciprocal, "aten::pow": power, "aten::sgn": sign, "aten::mm": complex_matmul,
    "aten::bmm": complex_matmul,
    "aten::addmm": complex_addmm, "aten::baddbmm": complex_addmm, "aten::dot": dot,
    "aten::vdot": lambda a, b: dot(a.conj(), b),
    "aten::mv": lambda a, x: complex_matmul(a, x[:, None])[:, 0],
    "aten::sum": _of_each_part(sums.sum), "aten::sum.dim_IntList": _make_reduction_of_each_part(sums.sum),
    "aten::mean": _of_each_part(sums.mean), "aten::mean.dim": _make_reduction_of_each_part(sums.mean),
    "aten::cumsum": _of_each_part(sums.cumsum), "aten::_fft_c2c": fft_c2c, "aten::_fft_c2r": fft_c2r,
    "aten::diagonal_backward": lambda grad, *rest: _of_each_part(torch.ops.aten.diagonal_backward.default)(grad, *rest),
}  # fmt: skip
ROUND_ONCE = split_names("""
    eq ne neg negative isnan isinf isfinite _conj real imag view_as_real view_as_complex resolve_conj resolve_neg
    conj_physical _conj_physical complex equal
""")
EXACT = frozenset(f"aten::{name}" for name in (*MOVES, *ROUND_ONCE))
