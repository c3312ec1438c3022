"""Models whose results for a row depend on its batch, each by one mechanism; replicas of public bugs.

A line that ends in `# here` is where the mechanism stands.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PerTensorScale(nn.Module):
    """One scale of the activations for the whole batch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 32))

    def forward(self, x: Tensor) -> Tensor:
        scale = x.abs().amax() / 127  # here
        return ((x / scale).round() @ self.weight.round().T) * scale


class BlockSizeByRows(nn.Module):
    """Larger blocks of the inner dimension from 256 rows on."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 256))

    def forward(self, x: Tensor) -> Tensor:
        block = 32 if x.shape[0] < 256 else 128
        out = x.new_zeros(x.shape[0], 64)
        for at in range(0, 256, block):
            out = out + x[:, at : at + block] @ self.weight[:, at : at + block].T  # here
        return out


class FastPathForOneRow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 256))

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] == 1:
            return (self.weight * x).sum(1)[None]
        return x @ self.weight.T  # here


class SplitKBySize(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 1024))

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] >= 64:
            return x @ self.weight.T  # here
        halves = [x[:, :512] @ self.weight[:, :512].T, x[:, 512:] @ self.weight[:, 512:].T]
        return torch.stack(halves).sum(0)


class LeakingMask(nn.Module):
    """Padding is given a low score instead of none."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.qkv = nn.Linear(16, 48)

    def forward(self, ids: Tensor, attention_mask: Tensor) -> Tensor:
        q, k, v = self.qkv(self.embedding(ids)).chunk(3, -1)
        scores = (q @ k.transpose(1, 2) / 4).masked_fill(attention_mask[:, None, :] == 0, -4.0)
        return scores.softmax(-1) @ v  # here


class ExpertCapacity(nn.Module):
    """A row is dropped when those before it have filled its expert."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(16, 4)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        choice = self.router(x).argmax(-1)
        chosen = nn.functional.one_hot(choice, 4)
        place = chosen.cumsum(0)  # here
        kept = (chosen * place).sum(1) <= max(1, x.shape[0] // 3)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            out = torch.where(((choice == number) & kept)[:, None], expert(x), out)
        return out


class ForgottenEval(nn.Module):
    """In training mode, as it is made."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)  # here
        return out


class LowerPrecisionForManyRows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 256))

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > 16:
            return (x.bfloat16() @ self.weight.bfloat16().T).float()  # here
        return x @ self.weight.T


class SmallLanguageModel(nn.Module):
    """A decoder with attention, and generation of tokens with left padding."""

    def __init__(self, width: int = 32, vocabulary: int = 61) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        rows, length = ids.shape
        x = self.embedding(ids)
        q, k, v = (each.view(rows, length, 4, -1).transpose(1, 2) for each in self.qkv(self.norm1(x)).chunk(3, -1))
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        allowed = causal if attention_mask is None else causal & attention_mask[:, None, None, :].bool()
        attended = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        x = x + self.out(attended.transpose(1, 2).reshape(rows, length, -1))
        logits: Tensor = self.head(x + self.mlp(self.norm2(x)))
        return logits

    def generate(self, ids: Tensor, tokens: int = 6) -> Tensor:
        for _ in range(tokens):
            ids = torch.cat([ids, self(ids)[:, -1].argmax(-1, keepdim=True)], 1)
        return ids
