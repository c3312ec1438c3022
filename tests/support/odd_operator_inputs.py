"""torch's operator samples with odd values, layouts and types put into them, and what is wrong with the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import portable_operators
import torch
from portable_operators import Verdict
from torch import Tensor


def _mix(x: Tensor, *values: float) -> Tensor:
    """x with every second value replaced by these in turn."""
    flat = x.detach().reshape(-1).clone()
    flat[::2] = torch.tensor(values, dtype=x.dtype).repeat(flat.numel() // len(values) + 1)[: flat[::2].numel()]
    return flat.reshape(x.shape)


def _overlapping(x: Tensor) -> Tensor:
    """Rows that share memory."""
    if x.dim() < 2 or x.numel() == 0:
        return x.detach().clone()
    line = x.detach().reshape(-1)[: x.shape[-1] + x.shape[-2] - 1].clone()
    line = torch.cat([line, line.new_zeros(max(0, x.shape[-1] + x.shape[-2] - 1 - line.numel()))])
    return line.as_strided(x.shape, (*[0] * (x.dim() - 2), 1, 1))


INF = float("inf")
VALUES: dict[str, Callable[[Tensor], Tensor]] = {
    "nan": lambda x: _mix(x, float("nan"), 1.0),
    "inf": lambda x: _mix(x, INF, -INF, 1.0),
    "zero": lambda x: _mix(x, 0.0, -0.0),
    "ties": lambda x: _mix(x, 1.0, 1.0, -1.0),
    "huge": lambda x: _mix(x, 3e38, -1e20, 2e25),
    "subnormal": lambda x: _mix(x, 1e-40, -3e-45, 1e-24),
    "expanded": lambda x: x.detach()[:1].clone().expand(x.shape) if x.dim() and x.numel() else x.detach().clone(),
    "overlapping": _overlapping,
    "strided": lambda x: x.detach().mT.contiguous().mT if x.dim() > 1 else x.detach().repeat_interleave(2)[::2]
    if x.dim() else x.detach().clone(),
}  # fmt: skip
TYPES = {"int64": torch.int64, "bool": torch.bool, "float16": torch.float16}


def iterate_odd_samples(operator: Any, kinds: list[str], count: int) -> Iterator[tuple[str, Any]]:
    """The first samples of an operator, with their float32 tensors made odd in each of the ways."""
    backward = portable_operators._has_backward(operator, torch.float32)
    samples = list(islice(portable_operators.iterate_samples(operator, torch.float32, 2 * count), 2 * count))
    for sample in samples[:: max(1, len(samples) // count)][:count]:
        for kind in kinds:

            def change(value: Any, kind: str = kind) -> Any:
                if (
                    not isinstance(value, Tensor)
                    or value.dtype is not torch.float32
                    or value.layout is not torch.strided
                ):
                    return value
                if kind in TYPES:
                    return value.detach().to(TYPES[kind])
                return VALUES[kind](value).requires_grad_(value.requires_grad and backward)

            yield kind, sample.transform(change)


def judge_odd_sample(operator: Any, kind: str, sample: Any) -> Verdict:
    """As `judge_sample`, but for what the specification decides (docs/portable.md): a step that overflows in float32 is
    an infinity (or what comes of it), squares below 1e-38 are 0, and operators that torch's CPU lacks in half precision
    run.
    """
    verdict = portable_operators.judge_sample(operator, sample, TYPES.get(kind, torch.float32))
    decided = ODD_TRANSFORMS if operator.name.startswith(("fft.", "stft", "istft")) else DECIDED.get(operator.name, ())
    if verdict.kind == "error":
        return Verdict("right", "") if kind in decided and any(each in verdict.why for each in SINGULAR) else verdict
    if verdict.kind != "other" or kind in decided:
        return Verdict("right", "")
    if kind == "float16" and any(words in verdict.why for words in HALF_REFUSED):
        return Verdict("right", "")
    return Verdict("right", "") if OVERFLOW[kind](verdict.why) else verdict


def _first_value_is_not_finite(why: str) -> bool:
    return " values: " in why and why.split(" values: ")[1].split(",")[0] in ("nan", "inf", "-inf")


def _is_tiny(why: str) -> bool:
    if " values: " not in why:
        return False
    mine, theirs = (float(part.split()[-1]) for part in why.split(" values: ")[1].split(",")[:2])
    return abs(mine - theirs) < 1e-18 or not abs(mine) < 1e18


OVERFLOW: dict[str, Callable[[str], bool]] = {
    **{kind: lambda why: False for kind in (*VALUES, *TYPES)},
    "huge": _first_value_is_not_finite,
    "float16": _first_value_is_not_finite,
    "subnormal": _is_tiny,
}
ODD_TRANSFORMS = ("nan", "inf", "huge")  # a NaN or an infinity of a line is in all its sums
EQUAL_VALUES = ("expanded", "overlapping", "ties", "zero", "inf", "nan", "int64", "bool", "float16")
NOT_FINITE, ALL_RANKS = ("nan", "inf"), ("nan", "inf", "huge", "zero", "ties", "subnormal", "expanded", "overlapping")
FACTORIZATIONS = ("cond", "lu", "lu_factor", "lu_factor_ex", "pinv", "qr", "cholesky_ex", "householder_product")
CONVOLUTIONS = [f"nn.functional.conv{form}{n}d" for form in ("", "_transpose") for n in (1, 2, 3)]
LEAST_SQUARES = ("linalg.lstsq", "linalg.lstsq.grad_oriented")
HALF_REFUSED = ("not implemented for 'Half'", "types other than float and double")
SINGULAR = ("LinAlgError", "is zero and using it on lu_solve")
TORCH_CRASHES = ("grid_sampler_2d", "grid_sampler_3d", "nn.functional.grid_sample")
"""torch's own kernels read outside of the image where a place is as far as that."""
# Every entry is a decision that docs/portable.md ("Odd values") gives the reason for.
DECIDED: dict[str, tuple[str, ...]] = {
    "digamma": ("zero", "ties", "huge"),  # the gradient at a pole is infinite
    # of equal values the first is meant, and has the gradient
    **dict.fromkeys(("masked.median", "median", "nanmedian", "mode", "kthvalue", "topk", "sort"), EQUAL_VALUES),
    "geqrf": ("inf", "huge"),  # a column whose squares vanish is not reflected
    "grid_sampler_2d": ("nan", "inf", "huge"),  # a NaN is outside
    "grid_sampler_3d": ("nan", "inf", "huge"),
    "nn.functional.grid_sample": ("nan", "inf", "huge"),
    # a place outside the input is a zero, which is multiplied
    **dict.fromkeys(CONVOLUTIONS, NOT_FINITE),
    "nn.functional.bilinear": ("inf",),  # infinities of both signs meet
    # torch refuses the layout
    "native_group_norm": ("overlapping", "strided"),
    **dict.fromkeys(
        ("native_layer_norm", "nn.functional.layer_norm"), ("huge",)
    ),  # 1 / sqrt(an infinite variance) is 0
    # the gradient at a NaN is that of the step it lies in, or NaN
    "nn.functional.hardswish": ("nan",),
    "nn.functional.softshrink": ("nan",),
    "nn.functional.pdist": NOT_FINITE,
    "nn.functional.scaled_dot_product_attention": NOT_FINITE,  # keys that are masked for every query have no gradient
    "logit": ("zero",),  # infinite at -0.0 too, of which torch has the sign by the place in the tensor
    "igammac": ("subnormal",),  # 1 - the lower one, to some 1e-14
    **dict.fromkeys(("polygamma", "special.polygamma"), ("inf", "ties", "int64")),  # poles are infinite; 0 at infinity
    "special.zeta": ("inf", "huge"),
    **dict.fromkeys(("special.bessel_j0", "special.bessel_j1"), ("inf",)),
    **dict.fromkeys(("std_mean", "var_mean"), ("inf", "ties")),  # the mean is that of `mean`
    # behind a NaN or an infinity, or without full rank, the written steps; see docs/portable.md
    **dict.fromkeys(("lu", "qr", "ormqr", *(f"linalg.{name}" for name in FACTORIZATIONS)), ALL_RANKS),
    **dict.fromkeys(("linalg.tensorinv", "linalg.tensorsolve"), ("huge", "subnormal")),  # singular in float64
    "linalg.eigh": ("subnormal",),  # values that are equal but for their rounding, by whose gaps a gradient divides
    **dict.fromkeys(("logdet", "linalg.slogdet"), ("expanded",)),  # of equal rows: 0, or what rounding leaves of it
    **dict.fromkeys(LEAST_SQUARES, ("huge", "expanded")),
}
