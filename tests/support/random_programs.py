"""Draws from every random function and distribution, and prints a digest of each: python random_programs.py THREADS"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch import distributions as D

import samerun

N = 20_011  # more than one thread takes at once


def spread(low: float, high: float) -> Tensor:
    return low + (high - low) * torch.arange(N, dtype=torch.float32) / N


def moved(make: Callable[[Tensor], D.Distribution], parameter: Tensor) -> Tensor:
    """The gradient of a sample in a parameter."""
    parameter = parameter.clone().requires_grad_()
    make(parameter).rsample().sum().backward()
    assert parameter.grad is not None
    return parameter.grad


def rrelu() -> Tensor:
    x = spread(-2, 2).requires_grad_()
    layer = nn.RReLU()
    y = layer(x)
    y.square().sum().backward()
    assert x.grad is not None
    return torch.cat([y.detach(), x.grad])


PROGRAMS: dict[str, Callable[[], Tensor]] = {
    "poisson": lambda: torch.poisson(spread(0, 60)),
    "binomial": lambda: torch.binomial(spread(0, 300).floor(), spread(0, 1)),
    "gamma": lambda: torch._standard_gamma(spread(0.01, 30)),
    "dirichlet": lambda: torch._sample_dirichlet(spread(0.01, 5)[:20_000].reshape(-1, 4)),
    "cauchy": lambda: torch.empty(N).cauchy_(1, 2),
    "log_normal": lambda: torch.empty(N).log_normal_(0.5, 0.3),
    "geometric": lambda: torch.empty(N).geometric_(0.2),
    "exponential": lambda: torch.empty(N).exponential_(2),
    "rrelu": rrelu,
    "Gamma": lambda: D.Gamma(spread(0.1, 9), spread(1, 3)).sample(),
    "Gamma moves": lambda: moved(lambda a: D.Gamma(a, 2.0), spread(0.1, 9)),
    "Beta": lambda: D.Beta(spread(0.1, 9), spread(0.3, 3)).sample(),
    "Beta moves": lambda: moved(lambda a: D.Beta(a, a + 1), spread(0.1, 9)[::10]),
    "Dirichlet moves": lambda: moved(lambda a: D.Dirichlet(a), spread(0.1, 9)[::10][:2000].reshape(-1, 4)),
    "StudentT": lambda: D.StudentT(spread(1, 9)).rsample(),
    "Poisson": lambda: D.Poisson(spread(0, 20)).sample(),
    "Binomial": lambda: D.Binomial(40, spread(0, 1)).sample(),
    "orthogonal": lambda: nn.init.orthogonal_(torch.empty(60, 40)),
    "wide orthogonal": lambda: nn.init.orthogonal_(torch.empty(9, 5, 7), gain=2),
    "qr of a batch": lambda: torch.linalg.qr(torch.randn(5, 9, 7))[0],
}


def digests() -> dict[str, str]:
    found = {}
    with samerun.portable():
        for name, program in PROGRAMS.items():
            torch.manual_seed(20)
            found[name] = hashlib.sha256(program().contiguous().numpy().tobytes()).hexdigest()
    return found


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]))
    for name, digest in digests().items():
        print(name, digest)
