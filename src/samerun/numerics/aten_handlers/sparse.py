"""Sparse tensors of layout coo, csr and csc on the CPU: their products with dense matrices, and what makes them.

A product adds value * row of the dense matrix for the entries of a row of the sparse one, in the order in which they
are stored, as a sum of class S; products are rounded before. Entries of one place (uncoalesced tensors, gradients of
`Embedding(sparse=True)`) are added one after the other, in the order in which they are stored.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from samerun.numerics.aten_handlers.declare import HALF_TYPES, Members, NoPortableKernel, Scalar, split_names
from samerun.numerics.kernels.ordered_scatter import index_add_, segment_sum

LAYOUTS = frozenset((torch.sparse_coo, torch.sparse_csr, torch.sparse_csc))


def _row_and_column_of_entries(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """int64, in the order in which the entries are stored."""
    if matrix.layout is torch.sparse_coo:
        rows, columns = matrix._indices()
        return rows, columns
    by_row = matrix.layout is torch.sparse_csr
    compressed, plain = (
        (matrix.crow_indices(), matrix.col_indices()) if by_row else (matrix.ccol_indices(), matrix.row_indices())
    )
    expanded = torch.repeat_interleave(torch.arange(compressed.numel() - 1), compressed.diff().to(torch.int64))
    plain = plain.to(torch.int64)
    return (expanded, plain) if by_row else (plain, expanded)


def _stored_values(x: Tensor) -> Tensor:
    values: Tensor = x._values() if x.layout is torch.sparse_coo else x.values()
    return values


def matmul_sparse_by_dense(sparse: Tensor, dense: Tensor) -> Tensor:
    """[m, n] of a sparse matrix [m, k] without dense dimensions and a dense one [k, n], both of one floating dtype."""
    if sparse.layout not in LAYOUTS or dense.layout is not torch.strided:
        raise NoPortableKernel("a product with a sparse second factor.", "Make that one dense: tensor.to_dense().")
    if sparse.dim() != 2 or dense.dim() != 2 or sparse.shape[1] != dense.shape[0] or _stored_values(sparse).dim() != 1:
        raise RuntimeError(f"mm: shapes {tuple(sparse.shape)} and {tuple(dense.shape)} cannot be multiplied")
    accepted = dense.is_floating_point() and not (dense.dtype in HALF_TYPES and sparse.layout is not torch.sparse_coo)
    if sparse.dtype is not dense.dtype or not accepted:
        raise RuntimeError(f"mm: expected two matrices of one floating type, got {sparse.dtype} and {dense.dtype}")
    rows, columns = _row_and_column_of_entries(sparse)
    wide = torch.float32 if dense.dtype in HALF_TYPES else dense.dtype
    values = _stored_values(sparse).to(wide)
    return segment_sum(dense.to(wide), rows, sparse.shape[0], columns, values).to(dense.dtype)


def addmm(x: Tensor, sparse: Tensor, dense: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> Tensor:
    """beta * x + alpha * (sparse @ dense)."""
    product = matmul_sparse_by_dense(sparse, dense)
    if alpha != 1:
        product.mul_(alpha)
    if beta == 0:  # what x holds, even NaN, is not looked at
        return product
    return torch.add(product, x if beta == 1 else torch.mul(x, beta))


def mv(sparse: Tensor, vector: Tensor) -> Tensor:
    if vector.dim() != 1:
        raise RuntimeError(f"mv: expected a vector, got shape {tuple(vector.shape)}")
    return matmul_sparse_by_dense(sparse, vector[:, None])[:, 0]


def _flat_places(x: Tensor) -> Tensor:
    """Of each entry (coo) its place, where the sparse dimensions are one."""
    sizes = x.shape[: x.sparse_dim()]
    strides = torch.tensor([math.prod(sizes[at + 1 :]) for at in range(len(sizes))], dtype=torch.int64)
    return (x._indices() * strides[:, None]).sum(0)


def coalesce(x: Tensor) -> Tensor:
    """Each place once, in ascending order; the values of one place added in the order in which they are stored."""
    if x.layout is not torch.sparse_coo or x.is_coalesced():
        return x
    indices, values, sizes = x._indices(), x._values(), x.shape[: x.sparse_dim()]
    places, of_entry = torch.unique(_flat_places(x), return_inverse=True)
    total = index_add_(values.new_zeros((places.numel(), *values.shape[1:])), 0, of_entry, values)
    unraveled = torch.stack(torch.unravel_index(places, sizes)) if sizes else indices[:, :1]
    return torch.sparse_coo_tensor(unraveled, total, x.shape, is_coalesced=True, check_invariants=False)


def to_dense(x: Tensor, dtype: torch.dtype | None = None, masked_grad: bool | None = None) -> Tensor:
    return coalesce(x).to_dense(dtype)


def _require_number(factor: Any) -> None:
    if isinstance(factor, Tensor) and (factor.dim() or factor.layout is not torch.strided):
        raise NoPortableKernel("a sparse tensor and another tensor.", "Compute with the values: tensor.values().")


def mul(x: Any, factor: Any) -> Tensor:
    """Of a sparse tensor and a number; each value is rounded once."""
    if not isinstance(x, Tensor) or x.layout is torch.strided:
        x, factor = factor, x
    _require_number(factor)
    return torch.mul(x, factor)


def div(x: Tensor, divisor: Any) -> Tensor:
    """Of a sparse tensor by a number; each value is rounded once."""
    _require_number(divisor)
    return torch.div(x, divisor)


def add(x: Tensor, y: Tensor, *, alpha: Scalar = 1) -> Tensor:
    """Dense + alpha * sparse: entry by entry, in the order in which they are stored. Sparse + alpha * sparse: the
    entries of both, those of x first.
    """
    if y.layout is not torch.sparse_coo or y.shape != x.shape or x.dtype is not y.dtype:
        raise NoPortableKernel("a sum of these sparse and dense tensors.", "Make them dense: tensor.to_dense().")
    values = y._values() if alpha == 1 else torch.mul(y._values(), alpha)
    if x.layout is torch.sparse_coo:
        if x.sparse_dim() != y.sparse_dim():
            raise NoPortableKernel("sparse tensors with different numbers of sparse dimensions.")
        indices = torch.cat([x._indices(), y._indices()], 1)
        both = torch.sparse_coo_tensor(
            indices, torch.cat([x._values(), values]), x.shape, is_coalesced=False, check_invariants=False
        )
        return coalesce(both) if x.is_coalesced() and y.is_coalesced() else both
    if x.layout is not torch.strided:
        raise NoPortableKernel("a sum of these sparse tensors.", "Make them dense: tensor.to_dense().")
    sizes = x.shape[: y.sparse_dim()]
    rows = x.contiguous().clone().reshape(math.prod(sizes), *x.shape[y.sparse_dim() :])
    return index_add_(rows, 0, _flat_places(y), values).reshape(x.shape)


def sparse_mask(x: Tensor, mask: Tensor) -> Tensor:
    """The values of x at the places of mask."""
    return coalesce(x).sparse_mask(mask)


def to_sparse_csr(x: Tensor, dense_dim: int | None = None) -> Tensor:
    return coalesce(x).to_sparse_csr(dense_dim)


def to_sparse_csc(x: Tensor, dense_dim: int | None = None) -> Tensor:
    return coalesce(x).to_sparse_csc(dense_dim)


EXACT = frozenset(
    f"aten::{name}"
    for name in split_names("""
    _coalesced_ _indices abs _nnz _to_copy _to_sparse _values alias ccol_indices clone
    col_indices copy_ crow_indices dense_dim detach detach_ empty_like indices is_coalesced is_same_size neg
    row_indices sparse_dim t transpose values zero_ zeros_like
    _has_compatible_shallow_copy_type
""")
)
"""They move values, or change the sign of each."""

MAKERS = frozenset(
    f"aten::{name}"
    for name in split_names("""
    _sparse_coo_tensor_unsafe _sparse_coo_tensor_with_dims _sparse_coo_tensor_with_dims_and_tensors _to_sparse
    _to_sparse_csc _to_sparse_csr _validate_sparse_coo_tensor_args sparse_coo_tensor sparse_compressed_tensor
    sparse_csr_tensor sparse_csc_tensor _sparse_compressed_tensor_unsafe _sparse_csr_tensor_unsafe
    _sparse_csc_tensor_unsafe _sparse_compressed_tensor_with_dims _validate_compressed_sparse_indices
    _validate_sparse_csr_tensor_args _validate_sparse_csc_tensor_args _validate_sparse_compressed_tensor_args
""")
)
"""They take dense tensors, and move values."""

MEMBERS: Members = {
    "aten::mm": matmul_sparse_by_dense, "aten::_sparse_mm": matmul_sparse_by_dense, "aten::addmm": addmm,
    "aten::_sparse_addmm": addmm, "aten::mv": mv, "aten::_coalesce": coalesce, "aten::_to_dense": to_dense,
    "aten::mul": mul, "aten::div": div, "aten::add": add, "aten::sparse_mask": sparse_mask,
    "aten::_to_sparse_csr": to_sparse_csr, "aten::_to_sparse_csc": to_sparse_csc,
}  # fmt: skip
