"""The training programs that costs are measured on: a CNN (batch 64), a GPT (4 layers, d=256), and two whose
operators are so small that a step takes about a millisecond: an MLP (2 layers) and an LSTM."""

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


class MLP(nn.Module):
    """Two layers, as reinforcement learning has them: 4,610 parameters, observations of 4 numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden1, self.hidden2, self.out = nn.Linear(4, 64), nn.Linear(64, 64), nn.Linear(64, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.hidden2(torch.tanh(self.hidden1(x)))))


class LSTM(nn.Module):
    """One layer of 64 units over 32 steps of 16 numbers: 21,000 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.out = nn.LSTM(16, 64, batch_first=True), nn.Linear(64, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.lstm(x)[0][:, -1])


def make(name: str, device: str = "cpu") -> tuple[nn.Module, Callable[[int], Tensor]]:
    """The seeded model and a function that trains it one step and returns the loss. All is made on the CPU first."""
    model, _, step = make_training(name, device)
    return model, step


def make_training(name: str, device: str = "cpu") -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], Tensor]]:
    """The same, with the optimizer."""
    torch.manual_seed(0)
    model: nn.Module
    if name == "cnn":
        model = CNN().to(device)
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        xs, ys = torch.randn(8, 64, 3, 32, 32).to(device), torch.randint(0, 10, (8, 64)).to(device)

        def loss_of(i: int) -> Tensor:
            return F.cross_entropy(model(xs[i % 8]), ys[i % 8])
    elif name in ("mlp", "lstm"):
        model = (MLP() if name == "mlp" else LSTM()).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        shape, classes = ((8, 64, 4), 2) if name == "mlp" else ((8, 32, 32, 16), 4)
        xs, ys = torch.randn(shape).to(device), torch.randint(0, classes, shape[:2]).to(device)

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

    return model, optimizer, step
