"""Train a compiled model: the loss is fused by torch.compile, with whatever backend this machine can use."""

import argparse
import hashlib
import os
import shutil
import sysconfig
import time

import torch
import torch.nn as nn


def default_backend():
    """The real compiler needs a C++ compiler and Python's headers."""
    header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    return "inductor" if compiler and os.path.exists(header) else "aot_eager"


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(8, width)
        self.scale = nn.Parameter(torch.ones(width))
        self.outer = nn.Linear(width, 1)

    def forward(self, x, y):
        hidden = torch.nn.functional.silu(self.inner(x)) * self.scale
        return (self.outer(hidden) - y).square().mean()


def make_data(size, generator):
    x = torch.randn(size, 8, generator=generator)
    return x, torch.sin(x[:, :1]) + x[:, 1:2] * x[:, 2:3]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default=default_backend())
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed + 1)

    model = Model(args.width)
    compiled = torch.compile(model, backend=args.backend)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    print("backend", args.backend)

    start = time.perf_counter()
    for step in range(1, args.steps + 1):
        x, y = make_data(args.batch_size, generator)
        loss = compiled(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 1:
            print(f"time: first step {time.perf_counter() - start:.2f} s")
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.5f}")
    print(f"time: all steps {time.perf_counter() - start:.2f} s")

    with torch.no_grad():
        x, y = make_data(256, generator)
        print(f"test loss {model(x, y).item():.5f}")
    sha = hashlib.sha256()
    for p in model.parameters():
        sha.update(p.detach().numpy().tobytes())
    print(sha.hexdigest())


if __name__ == "__main__":
    main()
