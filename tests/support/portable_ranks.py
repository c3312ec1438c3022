"""Three gloo processes inside `portable()`: a sum of tensors, then a small DDP training.

python tests/support/portable_ranks.py RANK WORLD FILE     prints two digests
"""

from __future__ import annotations

import hashlib
import sys

import torch
import torch.distributed as dist
from torch import nn

import samerun


def part(rank: int) -> torch.Tensor:
    """Values of many magnitudes, whose sum depends on the order."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(5000, generator=generator) * torch.exp(4 * torch.randn(5000, generator=generator))


def digest(*tensors: torch.Tensor) -> str:
    return hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in tensors)).hexdigest()


def main() -> None:
    rank, world = int(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("gloo", rank=rank, world_size=world, init_method=f"file://{sys.argv[3]}")
    with samerun.portable():
        total = part(rank)
        dist.all_reduce(total)
        torch.manual_seed(0)
        net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)))
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        generator = torch.Generator().manual_seed(rank)
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.randn(4, 5, generator=generator)).square().sum().backward()
            optimizer.step()
    print(digest(total), digest(*net.parameters()))
    dist.barrier()  # gloo ends a process whose peer leaves while it still writes to it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
