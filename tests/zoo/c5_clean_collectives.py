# {"cause": "none", "differs": [], "culprit_line": null, "source": "common practice", "reads": []}
# one rank of gloo: barriers, asynchronous reductions, gathered parts
import os
import tempfile
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import hashlib
import torch
from torch import nn


def digest(*tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().contiguous().numpy().tobytes())
    return h.hexdigest()[:16]


store = dist.FileStore(os.path.join(tempfile.mkdtemp(), "store"), 1)
dist.init_process_group("gloo", store=store, rank=0, world_size=1)
torch.manual_seed(0)
model = nn.Linear(6, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.02)
for step in range(4):
    x = torch.randn(8, 6)
    opt.zero_grad()
    (model(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
    for work in [dist.all_reduce(p.grad, async_op=True) for p in model.parameters()]:
        work.wait()
    opt.step()
    parts = [torch.empty_like(model.weight)]
    dist.all_gather(parts, model.weight.detach())
    dist.barrier()
    together = functional.all_gather_tensor(parts[0], 0, dist.group.WORLD) * 2
    flag = torch.empty(3)
    dist.broadcast(flag.fill_(step), 0)
print("RESULT", digest(*model.parameters(), together + 0))
dist.destroy_process_group()
