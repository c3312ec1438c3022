"""Small models of every kind that `portable()` must carry through training, and a program that trains them.

python tests/support/portable_models.py NAME STEPS     prints the digest of losses, parameters and buffers
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.short: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(y)) + self.short(x))


class ResNet18(nn.Module):
    """The eighteen layers, `width` channels in the first stage instead of 64."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)
        )
        stages, inputs = [], width
        for stage in range(4):
            outputs = width << stage
            stages += [Residual(inputs, outputs, 1 if stage == 0 else 2), Residual(outputs, outputs, 1)]
            inputs = outputs
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(inputs, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.flatten(F.adaptive_avg_pool2d(self.stages(self.stem(x)), 1), 1))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        q, k, v = (
            part.view(n, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1 if self.training else 0.0)
        x = x + self.proj(y.transpose(1, 2).reshape(n, length, width))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary: int = 50, length: int = 24, width: int = 32) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class LSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(40, 16)
        self.lstm = nn.LSTM(16, 20, 2, batch_first=True, dropout=0.1, bidirectional=True)
        self.head = nn.Linear(40, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        y, (h, _) = self.lstm(self.embedding(tokens))
        return self.head(y.mean(1) + torch.cat([h[-2], h[-1]], 1))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()

        def stage(inputs: int, outputs: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU())

        self.down1, self.down2, self.bottom = stage(3, 8), stage(8, 16), stage(16, 32)
        self.up2, self.up1 = nn.ConvTranspose2d(32, 16, 2, stride=2), nn.Upsample(scale_factor=2, mode="bilinear")
        self.join2, self.join1 = stage(32, 16), stage(24, 8)
        self.out = nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        y = self.bottom(F.avg_pool2d(b, 2))
        y = self.join2(torch.cat([self.up2(y), b], 1))
        return self.out(self.join1(torch.cat([self.up1(y), a], 1)))


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(37, 64), nn.Tanh(), nn.BatchNorm1d(64), nn.Dropout(0.2), nn.Linear(64, 33), nn.ELU(),
            nn.Linear(33, 10),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def images(n: int) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 3, 32, 32), torch.randint(0, 10, (n,))


def make(name: str) -> tuple[nn.Module, Callable[[int], Tensor]]:
    """The seeded model and a function that trains it one step and returns the loss."""
    torch.manual_seed(0)
    model: nn.Module
    optimizer: torch.optim.Optimizer
    n = 5
    if name == "resnet18":
        model = ResNet18()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, nesterov=True)
        xs, ys = torch.randn(4, n, 3, 32, 32), torch.randint(0, 10, (4, n))
    elif name == "gpt":
        model = GPT()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        xs, ys = torch.randint(0, 50, (4, n, 24)), torch.randint(0, 50, (4, n, 24))
    elif name == "lstm":
        model = LSTM()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, foreach=True)
        xs, ys = torch.randint(0, 40, (4, n, 9)), torch.randint(0, 5, (4, n))
    elif name == "unet":
        model = UNet()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        xs, ys = torch.randn(4, 2, 3, 16, 16), torch.randint(0, 4, (4, 2, 16, 16))
    elif name == "mlp":
        model = MLP()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, fused=True)
        xs, ys = torch.randn(4, n, 37), torch.randint(0, 10, (4, n))
    else:
        raise ValueError(f"no model is named {name!r}; there are {', '.join(NAMES)}")

    def step(i: int) -> Tensor:
        optimizer.zero_grad()
        out = model(xs[i % 4])
        if out.dim() == 3:
            out = out.transpose(1, 2)
        loss = F.cross_entropy(out, ys[i % 4], label_smoothing=0.1 if name == "resnet18" else 0.0)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return model, step


NAMES = ("resnet18", "gpt", "lstm", "unet", "mlp")


def digest(name: str, steps: int) -> str:
    model, step = make(name)
    found = hashlib.sha256()
    for i in range(steps):
        found.update(step(i).numpy().tobytes())
    for value in model.state_dict().values():
        found.update(value.contiguous().numpy().tobytes())
    return found.hexdigest()


if __name__ == "__main__":
    import samerun

    if len(sys.argv) > 3:
        torch.set_num_threads(int(sys.argv[3]))
    with samerun.portable():
        for one in sys.argv[1].split(","):
            print(one, digest(one, int(sys.argv[2])))
