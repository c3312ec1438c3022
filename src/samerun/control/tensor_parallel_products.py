"""Products with a sharded weight, in blocks whose size does not depend on the number of ranks. Imports torch.

Each block is copied: what a product gives may depend on where its operands lie in memory, and on their strides.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from samerun.base.errors import SamerunError
from samerun.control.gradient_tree import tree_all_reduce_sum_in_place, tree_sum_in_place


def _split_contiguous(tensor: Tensor, count: int, dimension: int) -> list[Tensor]:
    return [block.clone(memory_format=torch.contiguous_format) for block in tensor.chunk(count, dimension)]


def _sum_over_blocks_and_ranks_in_place(products: list[Tensor], group: Any, scratch: Any) -> Tensor:
    whole = tree_sum_in_place(products)
    tree_all_reduce_sum_in_place(whole.view(-1), group, group.size(), scratch)
    return whole


def _flatten_to_rows_or_raise_in_autocast(x: Tensor) -> Tensor:
    if torch.is_autocast_enabled(x.device.type):
        raise SamerunError(
            "tp_comm_hook: a linear layer is called under autocast.",
            hint="Convert the model: model.to(torch.bfloat16).",
        )
    return x.reshape(-1, x.shape[-1])


class ColumnParallelLinearInBlocks(torch.autograd.Function):
    """x times a weight of which each rank has some rows; each rank gets some columns of the result."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, group: Any, blocks_per_rank: int, scratch: Any
    ) -> Tensor:
        rows = _flatten_to_rows_or_raise_in_autocast(x).contiguous()
        biases = _split_contiguous(bias, blocks_per_rank, 0) if bias is not None else [None] * blocks_per_rank
        parts = [
            linear(rows, *each) for each in zip(_split_contiguous(weight, blocks_per_rank, 0), biases, strict=True)
        ]
        ctx.save_for_backward(rows, weight)
        ctx.how, ctx.has_bias = (group, blocks_per_rank, scratch, x.shape), bias is not None
        return torch.cat(parts, 1).view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight = ctx.saved_tensors
        group, blocks_per_rank, scratch, shape = ctx.how
        blocks = _split_contiguous(gradients[0].reshape(len(rows), -1), blocks_per_rank, 1)
        products = [
            block @ part for block, part in zip(blocks, _split_contiguous(weight, blocks_per_rank, 0), strict=True)
        ]
        of_weight = torch.cat([block.T @ rows for block in blocks])
        of_bias = torch.cat([block.sum(0) for block in blocks]) if ctx.has_bias else None
        of_x = _sum_over_blocks_and_ranks_in_place(products, group, scratch).view(shape)
        return of_x, of_weight, of_bias, None, None, None


class RowParallelLinearInBlocks(torch.autograd.Function):
    """x, of which each rank has some columns, times a weight of which each has those; all get the whole result."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, group: Any, blocks_per_rank: int, scratch: Any
    ) -> Tensor:
        rows = _flatten_to_rows_or_raise_in_autocast(x)
        pairs = zip(
            _split_contiguous(rows, blocks_per_rank, 1), _split_contiguous(weight, blocks_per_rank, 1), strict=True
        )
        whole = _sum_over_blocks_and_ranks_in_place([linear(*pair) for pair in pairs], group, scratch)
        ctx.save_for_backward(rows, weight)
        ctx.how, ctx.has_bias = (blocks_per_rank, x.shape), bias is not None
        return (whole if bias is None else whole.add_(bias)).view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight = ctx.saved_tensors
        blocks_per_rank, shape = ctx.how
        gradient = gradients[0].reshape(len(rows), -1).contiguous()
        of_x = torch.cat([gradient @ part for part in _split_contiguous(weight, blocks_per_rank, 1)], 1).view(shape)
        of_weight = torch.cat([gradient.T @ part for part in _split_contiguous(rows, blocks_per_rank, 1)], 1)
        return of_x, of_weight, gradient.sum(0) if ctx.has_bias else None, None, None, None
