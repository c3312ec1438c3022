# {"switches": [["optimizer-implementation"], ["inference-mode"], ["memory-format"], ["attention"], ["recompute"], ["autocast"], ["ACCUMULATE=1", "ACCUMULATE=2"], ["ATTENTION=own", "ATTENTION=torch"], ["OPTIMIZER=adamw MASKED=0", "OPTIMIZER=adamw MASKED=1"]], "environments": [{"MODEL": "cnn", "DTYPE": "float32"}, {"MODEL": "gpt", "DTYPE": "float32"}, {"MODEL": "lstm", "DTYPE": "float32"}, {"MODEL": "vit", "DTYPE": "float32"}, {"MODEL": "unet", "DTYPE": "float32"}, {"MODEL": "cnn", "DTYPE": "bfloat16"}, {"MODEL": "gpt", "DTYPE": "bfloat16"}, {"MODEL": "lstm", "DTYPE": "bfloat16"}, {"MODEL": "vit", "DTYPE": "bfloat16"}, {"MODEL": "unet", "DTYPE": "bfloat16"}]}
"""Five small models under settings that are neutral."""
import os
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

env = os.environ.get
DTYPE = getattr(torch, env("DTYPE", "float32"))
torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(x).split(c, 2))
        if env("ATTENTION") == "own":
            scores = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
            if self.causal:
                scores = scores.masked_fill(torch.ones(t, t, dtype=torch.bool).tril().logical_not(), float("-inf"))
            y = scores.softmax(-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, width, causal):
        super().__init__()
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, 2, causal)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        x = x + self.attention(self.one(x))
        return x + self.mlp(self.two(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, 16), nn.Embedding(12, 16)
        self.blocks = nn.ModuleList(Block(16, True) for _ in range(2))
        self.head = nn.Linear(16, 20, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x):
        x = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.training else block(x)
        return self.head(x).flatten(0, 1)


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 4, 4)
        self.block = Block(16, False)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        return self.head(checkpoint(self.block, x, use_reentrant=False).mean(1))


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        norm = nn.GroupNorm(2, 8) if env("ACCUMULATE") else nn.BatchNorm2d(8)
        self.conv, self.rest = nn.Conv2d(3, 8, 3, padding=1), nn.Sequential(norm, nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Linear(8 * 16, 5)

    def forward(self, x):
        return self.head(self.rest(checkpoint(self.conv, x, use_reentrant=False)).flatten(1))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.middle = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(8, 8, 2, 2), nn.Conv2d(16, 5, 1)

    def forward(self, x):
        a = F.silu(self.down(x))
        b = F.silu(checkpoint(self.middle, F.avg_pool2d(a, 2), use_reentrant=False))
        return self.out(torch.cat([a, self.up(b)], 1)).mean((2, 3))


class LSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.lstm, self.head = nn.Embedding(20, 12), nn.LSTM(12, 12, batch_first=True), nn.Linear(12, 20)

    def forward(self, x):
        return self.head(self.lstm(self.tokens(x))[0]).flatten(0, 1)


model = {"cnn": CNN, "gpt": GPT, "lstm": LSTM, "vit": ViT, "unet": UNet}[env("MODEL", "cnn")]().to(DTYPE)
texts = env("MODEL") in ("gpt", "lstm")
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
data = torch.Generator().manual_seed(1)
parts = int(env("ACCUMULATE") or 1)
if parts > 1 or env("ACCUMULATE"):
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # masks of split batches are other masks
autocast = torch.autocast("cpu", torch.bfloat16) if DTYPE == torch.float32 and not texts else nullcontext()
for step in range(6):
    x = torch.randint(20, (8, 12), generator=data) if texts else torch.randn(8, 3, 8, 8, generator=data).to(DTYPE)
    y = x.flatten() if texts else torch.randint(5, (8,), generator=data)
    optimizer.zero_grad()
    for part, target in zip(x.chunk(parts), y.chunk(parts)):
        with autocast:
            out = model(part)
            if env("MASKED") == "1":
                picked = out.float().log_softmax(-1).gather(1, target[:, None])
                loss = -picked.sum() / len(target)
            else:
                loss = F.cross_entropy(out.float(), target)
        (loss / parts).backward()
    optimizer.step()
    if step % 3 == 2:
        model.eval()
        with torch.no_grad():
            model(x)
        model.train()
