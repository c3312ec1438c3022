"""Class M: products of matrices. alpha, beta and bias come afterwards, one rounding each; factors of 1 are omitted."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from samerun.numerics.kernels.linear_algebra import matmul
from samerun.numerics.operators.declare import Members, NotInTable, widen_half_inputs


def _require_one_float_type(name: str, *tensors: Tensor) -> None:
    for tensor in tensors:
        if not tensor.is_floating_point():
            raise NotInTable(f"{tensor.dtype}.", "Convert it to float32 first: tensor.float().")
        if tensor.dtype is not tensors[0].dtype:
            raise RuntimeError(f"{name}: expected one type, got {tensors[0].dtype} and {tensor.dtype}")


def _require_fitting_shapes(name: str, a: Tensor, b: Tensor, dims: int) -> None:
    """torch's own checks, before any memory is read."""
    if a.dim() != dims or b.dim() != dims:
        raise RuntimeError(f"{name}: expected {dims}-D tensors, got {tuple(a.shape)} and {tuple(b.shape)}")
    if a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        raise RuntimeError(f"{name}: shapes cannot be multiplied ({tuple(a.shape)} and {tuple(b.shape)})")


def mm(a: Tensor, b: Tensor) -> Tensor:
    _require_one_float_type("mm", a, b)
    _require_fitting_shapes("mm", a, b, 2)
    return matmul(a, b)


def bmm(a: Tensor, b: Tensor) -> Tensor:
    _require_one_float_type("bmm", a, b)
    _require_fitting_shapes("bmm", a, b, 3)
    return matmul(a, b)


def _add_product(name: str, dims: int, x: Tensor, a: Tensor, b: Tensor, beta: Any, alpha: Any) -> Tensor:
    """alpha * (a @ b) + beta * x."""
    _require_one_float_type(name, a, b, x)
    _require_fitting_shapes(name, a, b, dims)
    if alpha == 1 and beta == 1:
        shape = (*a.shape[:-1], b.shape[-1])
        return matmul(a, b, x.expand(shape))
    if x.dtype in (torch.bfloat16, torch.float16):
        wide = _add_product(name, dims, x.float(), a.float(), b.float(), beta, alpha)
        return wide.to(x.dtype)
    product = matmul(a, b)
    if alpha != 1:
        product.mul_(alpha)
    if beta == 0:  # what x holds, even NaN, is not looked at
        return product
    return product.add_(x if beta == 1 else x.mul(beta))


def addmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return _add_product("addmm", 2, x, a, b, beta, alpha)


def baddbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return _add_product("baddbmm", 3, x, a, b, beta, alpha)


def addbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """The batch is part of k: k runs over (batch, k)."""
    _require_fitting_shapes("addbmm", a, b, 3)
    rows = a.permute(1, 0, 2).reshape(a.shape[1], -1)
    return _add_product("addbmm", 2, x, rows, b.reshape(-1, b.shape[2]), beta, alpha)


def addmm_activation(
    x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1, use_gelu: bool = False
) -> Tensor:
    if use_gelu:
        raise NotInTable("use_gelu=True.", "Call torch.addmm, then F.gelu.")
    return torch.threshold(addmm(x, a, b, beta=beta, alpha=alpha), 0, 0)  # as `relu`: every zero is +0.0


def mv(a: Tensor, x: Tensor) -> Tensor:
    _require_one_float_type("mv", a, x)
    _require_fitting_shapes("mv", a, x[:, None] if x.dim() == 1 else x, 2)
    return matmul(a, x[:, None])[:, 0]


def addmv(x: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return _add_product("addmv", 2, x.reshape(-1, 1), a, b[:, None], beta, alpha)[:, 0]


def dot(a: Tensor, b: Tensor) -> Tensor:
    _require_one_float_type("dot", a, b)
    if a.dim() != 1 or a.shape != b.shape:
        raise RuntimeError(f"dot: expected two 1-D tensors of one size, got {tuple(a.shape)} and {tuple(b.shape)}")
    return matmul(a[None, :], b[:, None]).reshape(())


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    _require_one_float_type("linear", x, weight, *([] if bias is None else [bias]))
    rows = x.reshape(-1, x.shape[-1])
    _require_fitting_shapes("linear", rows, weight.t(), 2)
    plus = None if bias is None else bias.expand(rows.shape[0], -1)
    return matmul(rows, weight.t(), plus).reshape(*x.shape[:-1], weight.shape[0])


MEMBERS: Members = {
    "aten::mm": mm,
    "aten::bmm": bmm,
    "aten::addmm": addmm,
    "aten::baddbmm": baddbmm,
    "aten::addbmm": addbmm,
    "aten::_addmm_activation": addmm_activation,
    "aten::mv": mv,
    "aten::addmv": widen_half_inputs(addmv),
    "aten::dot": dot,
    "aten::vdot": dot,
    "aten::linear": linear,
}
