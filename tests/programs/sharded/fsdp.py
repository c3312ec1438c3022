"""fully_shard, AdamW, a clipped norm, full tensors at the end. With `set`: parameters come to the optimizer as a set."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(*(nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(6)), nn.Linear(32, 1))
if "set" in sys.argv:
    blocks = {f"{at}" for at in range(6)}
    for name in blocks:  # WRONG set
        fully_shard(model.get_submodule(name))
        nn.init.normal_(model.get_submodule(name)[0].weight, std=0.2)
else:
    for at in range(6):
        fully_shard(model[at])
        nn.init.normal_(model[at][0].weight, std=0.2)
fully_shard(model)
opt = torch.optim.AdamW(model.parameters(), lr=0.01)
seed = dist.get_rank()
if "entropy" in sys.argv:
    seed = torch.seed()  # WRONG entropy
data = torch.Generator().manual_seed(seed)
for step in range(4):
    x = torch.randn(8, 32, generator=data)
    opt.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
full = [p.full_tensor() for p in model.parameters()]
if dist.get_rank() == 0:
    print("RESULT", norm.full_tensor().item(), sum(p.double().sum().item() for p in full))
dist.destroy_process_group()
