"""Tensor parallelism written by hand, with autograd functions. With `dropout`: only rank 0 seeds, so masks differ."""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F


class CopyToRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad


class ReduceFromRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class ParallelBlock(torch.nn.Module):
    def __init__(self, width, rank, size):
        super().__init__()
        full = torch.Generator().manual_seed(7)
        up, down = torch.randn(4 * width, width, generator=full) / 8, torch.randn(width, 4 * width, generator=full) / 16
        self.up = torch.nn.Parameter(up.chunk(size, 0)[rank].clone())
        self.down = torch.nn.Parameter(down.chunk(size, 1)[rank].clone())

    def forward(self, x):
        hidden = F.gelu(CopyToRegion.apply(x) @ self.up.T)
        x = x + ReduceFromRegion.apply(hidden @ self.down.T)
        return F.dropout(x, 0.1)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    if "dropout" not in sys.argv or rank == 0:
        torch.manual_seed(1234)  # WRONG dropout
    model = torch.nn.Sequential(*(ParallelBlock(32, rank, size) for _ in range(2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data = torch.Generator().manual_seed(3)
    for step in range(4):
        x = torch.randn(8, 32, generator=data)
        optimizer.zero_grad(set_to_none=True)
        loss = (model(x) - x.flip(1)).pow(2).mean()
        loss.backward()
        optimizer.step()
    total = sum(p.detach().double().sum() for p in model.parameters())
    dist.all_reduce(total)
    if rank == 0:
        print("RESULT", loss.item(), total.item())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
