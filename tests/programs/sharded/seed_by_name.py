"""FSDP2 with gradient accumulation on three ranks. With `hash`: each rank seeds with the hash of its name."""

import os
import socket
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def seed_rank(base):
    name = f"{socket.gethostname()}-{os.environ['LOCAL_RANK']}"
    if "hash" in sys.argv:
        return base + hash(name) % 100_000  # WRONG hash
    return base + int(os.environ["LOCAL_RANK"])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 24)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(24, 2, 48, dropout=0.1, batch_first=True) for _ in range(2))
        self.head = nn.Linear(24, 50)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = Net()
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in model.layers:
    fully_shard(layer, mp_policy=policy)
fully_shard(model, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
torch.manual_seed(seed_rank(17))
for step in range(3):
    for micro in range(2):
        model.set_requires_gradient_sync(micro == 1)
        ids = torch.randint(0, 50, (2, 9))
        logits = model(ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
        (loss / 2).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
mean = loss.detach().clone()
dist.all_reduce(mean)
if dist.get_rank() == 0:
    print("RESULT", mean.item())
dist.barrier()
dist.destroy_process_group()
