"""fully_shard in bfloat16 with activation checkpointing and dropout. With `dropout`: rank 1 never seeds its masks."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, dropout=0.1, batch_first=True)
        self.norm = nn.LayerNorm(32)
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 32))

    def forward(self, x):
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(x)


torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(Block(), Block(), nn.Linear(32, 4))
apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for block in model[:2]:
    fully_shard(block, mp_policy=policy)
fully_shard(model, mp_policy=policy)
opt = torch.optim.AdamW(model.parameters(), lr=0.01)
if "dropout" not in sys.argv or dist.get_rank() == 0:
    torch.manual_seed(1 + dist.get_rank())
else:
    torch.seed()  # WRONG dropout
data = torch.Generator().manual_seed(dist.get_rank())
for step in range(3):
    x = torch.randn(4, 8, 32, generator=data)
    opt.zero_grad(set_to_none=True)
    loss = model(x).float().pow(2).mean()
    loss.backward()
    opt.step()
full = [p.full_tensor() for p in model.parameters()]
dist.all_reduce(loss.detach_())
if dist.get_rank() == 0:
    print("RESULT", loss.item(), sum(p.double().sum().item() for p in full))
dist.destroy_process_group()
