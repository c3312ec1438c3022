"""The two training programs that costs are measured on: a CNN (batch 64) and a GPT (4 layers, d=256)."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CNN(nn.Module):
    """Three convolutions with batch norm, 0.46 million parameters, images of 3 x 32 x 32."""

    def __init__(self) -> None:
        super().__init__()
        widths = [3, 32, 64, 128]
        self.conv = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in itertools.pairwise(widths))
        self.norm = nn.ModuleList(nn.BatchNorm2d(width) for width in widths[1:])
        self.hidden = nn.Linear(128 * 16, 176)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(176, 10)

    def forward(self, x: Tensor) -> Tensor:
        for conv, norm in zip(self.conv, self.norm, strict=True):
            x = F.max_pool2d(F.relu(norm(conv(x))), 2)
        return self.out(self.drop(F.relu(self.hidden(x.flatten(1)))))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.proj(y.transpose(1, 2).reshape(batch, length, width)))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))


class GPT(nn.Module):
    """4 layers, width 256, 4 heads, vocabulary 512, 128 tokens: 3.45 million parameters."""

    def __init__(self, vocabulary: int = 512, length: int = 128, width: int = 256, layers: int = 4) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def make(name: str, device: str = "cpu") -> tuple[nn.Module, Callable[[int], Tensor]]:
    """The seeded model and a function that trains it one step and returns the loss. All is made on the CPU first."""
    torch.manual_seed(0)
    model: nn.Module
    if name == "cnn":
        model = CNN().to(device)
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        xs, ys = torch.randn(8, 64, 3, 32, 32).to(device), torch.randint(0, 10, (8, 64)).to(device)

        def loss_of(i: int) -> Tensor:
            return F.cross_entropy(model(xs[i % 8]), ys[i % 8])
    else:
        model = GPT().to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        text = torch.randint(0, 512, (8, 8, 129)).to(device)

        def loss_of(i: int) -> Tensor:
            x = text[i % 8]
            return F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())

    def step(i: int) -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(i)
        loss.backward()
        optimizer.step()
        return loss

    return model, step
