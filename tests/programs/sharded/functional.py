"""Functional collectives, whose results are waited for when they are used; compiled with `compile`."""

import sys

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

torch.set_num_threads(1)
dist.init_process_group("gloo")
group, size, rank = dist.group.WORLD, dist.get_world_size(), dist.get_rank()
torch.manual_seed(0)
weight = torch.randn(32, 32)
generator = torch.Generator().manual_seed(rank)
if "unseeded" in sys.argv and rank == 1:
    generator = torch.Generator()
    generator.seed()  # WRONG unseeded
for step in range(4):
    x = torch.randn(16, 32, generator=generator)
    both = functional.all_gather_tensor(x, 0, group)
    summed = functional.all_reduce(x.T @ x, "sum", group)
    late = functional.all_reduce(x.abs(), "max", group)
    half = functional.reduce_scatter_tensor(both @ weight, "avg", 0, group)
    swapped = functional.all_to_all_single(half, None, None, group)
    weight = weight - 0.001 * (summed + swapped.T @ swapped) - 1e-4 * functional.broadcast(weight, 0, group)
    moved = functional.all_reduce_coalesced([weight.sum(0), weight.sum(1)], "sum", group)
    weight = (weight + 1e-3 * (moved[0] + moved[1].unsqueeze(1)) + late.mean()).tanh()
if rank == 0:
    print("RESULT", weight.double().sum().item())
dist.destroy_process_group()
