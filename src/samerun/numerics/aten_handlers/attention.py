"""Attention: softmax((Q * scale) K^T + mask) V, step by step, whatever path torch would have chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from samerun.numerics.aten_handlers.declare import HALF_TYPES, Members


def scaled_dot_product_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """q [..., l, e], k [..., s, e], v [..., s, f] -> [..., l, f]. Rows where everything is masked give 0.

    Half types compute in float32, and the result is rounded once.
    """
    if q.dtype in HALF_TYPES and k.dtype is q.dtype and v.dtype is q.dtype:
        wide_mask = mask.float() if mask is not None and mask.dtype is q.dtype else mask
        wide = scaled_dot_product_attention(
            q.float(), k.float(), v.float(), wide_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
        return wide.to(q.dtype)
    if is_causal and mask is not None:
        raise RuntimeError("scaled_dot_product_attention: give either attn_mask or is_causal=True")
    if enable_gqa:
        k = k.repeat_interleave(q.shape[-3] // k.shape[-3], -3)
        v = v.repeat_interleave(q.shape[-3] // v.shape[-3], -3)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = torch.matmul(q * scale, k.transpose(-2, -1))
    if is_causal:
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = torch.where(ahead, _minus_infinity_scalar_like(scores), scores)
    elif mask is not None:
        scores = (
            torch.where(mask, scores, _minus_infinity_scalar_like(scores))
            if mask.dtype is torch.bool
            else scores + mask
        )
    weights = torch.softmax(scores, -1) if mask is None else torch._safe_softmax(scores, -1)
    if dropout_p > 0:
        weights = torch.dropout(weights, dropout_p, True)
    return torch.matmul(weights, v)


def _minus_infinity_scalar_like(scores: Tensor) -> Tensor:
    """What a masked score becomes. (torch's masked_fill takes three times as long as its where.)"""
    return torch.full((), -math.inf, dtype=scores.dtype, device=scores.device)


def native_multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor | None,
    proj_weight: Tensor,
    proj_bias: Tensor | None,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor]:
    """What nn.MultiheadAttention calls where no gradient is asked for; the same steps as where one is."""
    parts = qkv_weight.chunk(3), (None, None, None) if qkv_bias is None else qkv_bias.chunk(3)
    q, k, v = (
        torch.nn.functional.linear(x, w, b).view(*x.shape[:2], num_heads, embed_dim // num_heads).transpose(1, 2)
        for x, w, b in zip((query, key, value), *parts, strict=True)
    )
    additive_mask = _to_additive_mask(mask, mask_type, q)
    scores = torch.matmul(q * math.sqrt(1.0 / float(q.shape[-1])), k.transpose(-2, -1))
    weights = torch.softmax(scores if additive_mask is None else scores + additive_mask, -1)
    y = torch.matmul(weights, v).transpose(1, 2).flatten(2)
    y = torch.nn.functional.linear(y, proj_weight, proj_bias)
    returned_weights = y.new_empty(0) if not need_weights else weights.mean(1) if average_attn_weights else weights
    return y, returned_weights


def _to_additive_mask(mask: Tensor | None, mask_type: int | None, q: Tensor) -> Tensor | None:
    """The mask as numbers to add. Type 0 is [l, s], 1 is [batch, s], 2 is [batch, heads, l, s]."""
    if mask is None:
        return None
    if mask.dtype is torch.bool:
        mask = torch.zeros(mask.shape, dtype=q.dtype, device=q.device).masked_fill(mask, -math.inf)
    return mask[:, None, None, :] if mask_type == 1 else mask


def transformer_encoder_layer_fwd(
    x: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """What nn.TransformerEncoderLayer calls where no gradient is asked for."""
    shape: Sequence[int] = (embed_dim,)
    functional = torch.nn.functional

    def attend_to_self(y: Tensor) -> Tensor:
        return native_multi_head_attention(
            y, y, y, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False, True, mask_type
        )[0]

    def feed_forward(y: Tensor) -> Tensor:
        y = functional.linear(y, ffn_weight_1, ffn_bias_1)
        return functional.linear(functional.gelu(y) if use_gelu else functional.relu(y), ffn_weight_2, ffn_bias_2)

    def norm_1(y: Tensor) -> Tensor:
        return functional.layer_norm(y, shape, norm_weight_1, norm_bias_1, eps)

    def norm_2(y: Tensor) -> Tensor:
        return functional.layer_norm(y, shape, norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = x + attend_to_self(norm_1(x))
        return x + feed_forward(norm_2(x))
    x = norm_1(x + attend_to_self(x))
    return norm_2(x + feed_forward(x))


def nested_tensor_from_mask_left_aligned(x: Tensor, mask: Tensor) -> bool:
    """Always false, by which nn.TransformerEncoder keeps padding where it is. (With it taken out a sequence has other
    shapes in another batch.)
    """
    return False


COMPOSED: Members = {
    "aten::scaled_dot_product_attention": scaled_dot_product_attention,
    "aten::_native_multi_head_attention": native_multi_head_attention,
    "aten::_transformer_encoder_layer_fwd": transformer_encoder_layer_fwd,
    "aten::_nested_tensor_from_mask_left_aligned": nested_tensor_from_mask_left_aligned,
}
