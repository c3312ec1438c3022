"""FSDP2 on a model made on the meta device. With `layers`: nothing sets the parameters of the blocks afterwards."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.blocks, self.out = nn.Embedding(32, 16), nn.ModuleList([Block(), Block()]), nn.Linear(16, 32)

    def forward(self, words):
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        return self.out(x)

    def reset_parameters(self):
        self.words.reset_parameters()
        self.out.reset_parameters()
        if "layers" not in sys.argv:
            for block in self.blocks:
                for layer in block.children():
                    layer.reset_parameters()


torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
with torch.device("meta"):
    model = Model()
for block in model.blocks:
    fully_shard(block)
fully_shard(model)
model.to_empty(device="cpu")  # WRONG layers
model.reset_parameters()
opt = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(3):
    words = torch.randint(0, 32, (8, 12))
    loss = nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten())
    loss.backward()
    opt.step()
    opt.zero_grad()
full = [p.full_tensor() for p in model.parameters()]
if dist.get_rank() == 0:
    print("RESULT", loss.item(), sum(p.double().sum().item() for p in full))
dist.destroy_process_group()
