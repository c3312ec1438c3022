"""Denoising diffusion on points of two spirals, with an averaged copy of the model for sampling."""

import argparse
import copy
import hashlib
import math

import torch
from torch import nn


def spirals(count):
    turn = 3 * math.pi * torch.rand(count).sqrt()
    arm = torch.randint(2, (count,)) * 2 - 1
    points = torch.stack([turn.cos() * turn, turn.sin() * turn], dim=1) * arm.unsqueeze(1)
    return points / 6 + 0.02 * torch.randn(count, 2)


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("frequencies", torch.exp(-math.log(1000.0) * torch.arange(dim // 2) / (dim // 2)))

    def forward(self, t):
        angles = t.float().unsqueeze(1) * self.frequencies
        return torch.cat([angles.sin(), angles.cos()], dim=1)


class Denoiser(nn.Module):
    def __init__(self, width=64, depth=3):
        super().__init__()
        self.time = nn.Sequential(TimeEmbedding(32), nn.Linear(32, width), nn.SiLU())
        self.first = nn.Linear(2, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(depth))
        self.last = nn.Linear(width, 2)

    def forward(self, x, t):
        hidden, when = self.first(x), self.time(t)
        for layer, norm in zip(self.layers, self.norms):
            hidden = hidden + nn.functional.silu(norm(layer(hidden + when)))
        return self.last(hidden)


class EMA:
    """A slowly moving average of a model's weights."""

    def __init__(self, model, decay):
        self.model, self.decay = copy.deepcopy(model).eval().requires_grad_(False), decay

    @torch.no_grad()
    def update(self, model):
        for mean, new in zip(self.model.parameters(), model.parameters()):
            mean.lerp_(new, 1 - self.decay)
        for mean, new in zip(self.model.buffers(), model.buffers()):
            mean.copy_(new)


class Diffusion:
    def __init__(self, steps):
        self.steps = steps
        self.betas = torch.linspace(1e-4, 0.08, steps)
        self.alphas = 1 - self.betas
        self.products = torch.cumprod(self.alphas, dim=0)

    def loss(self, model, x):
        t = torch.randint(self.steps, (len(x),))
        noise = torch.randn_like(x)
        keep = self.products[t].unsqueeze(1)
        return nn.functional.mse_loss(model(keep.sqrt() * x + (1 - keep).sqrt() * noise, t), noise)

    @torch.no_grad()
    def sample(self, model, count):
        x = torch.randn(count, 2)
        for step in reversed(range(self.steps)):
            t = torch.full((count,), step)
            predicted = model(x, t)
            x = x - self.betas[step] / (1 - self.products[step]).sqrt() * predicted
            x = x / self.alphas[step].sqrt()
            if step > 0:
                x = x + self.betas[step].sqrt() * torch.randn_like(x)
        return x


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train-steps", type=int, default=150)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--timesteps", type=int, default=50)
    parser.add_argument("--ema-decay", type=float, default=0.98)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    model, diffusion = Denoiser(), Diffusion(args.timesteps)
    ema = EMA(model, args.ema_decay)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20))
    for step in range(1, args.train_steps + 1):
        loss = diffusion.loss(model, spirals(args.batch_size))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        warmup.step()
        ema.update(model)
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.5f}, learning rate {warmup.get_last_lr()[0]:.5f}")

    samples = diffusion.sample(ema.model, 200)
    nearest = torch.cdist(samples, spirals(1000)).min(dim=1).values
    print(f"samples: mean {samples.mean().item():.5f}, distance to the data {nearest.mean().item():.5f}")
    sha = hashlib.sha256()
    for tensor in [*model.parameters(), *ema.model.parameters()]:
        sha.update(tensor.detach().numpy().tobytes())
    print(sha.hexdigest())


if __name__ == "__main__":
    main()
