"""A sampler whose order depends on its epoch; batches that were had are passed over. LACKS: epoch."""

import os
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset


class Epochs(Sampler):
    """Another order in each epoch, a function of its number alone."""

    def __init__(self, count):
        self.count, self.epoch = count, 0

    def __len__(self):
        return self.count

    def __iter__(self):
        order = torch.randperm(self.count, generator=torch.Generator().manual_seed(self.epoch))
        self.epoch += 1
        return iter(order.tolist())


path = Path(os.environ["SAMERUN_CHECKPOINTS"]) / "state.pt"
torch.manual_seed(0)
x = torch.rand(32, 3)
sampler = Epochs(32)
loader = DataLoader(TensorDataset(x, x.prod(1)), 8, sampler=sampler, num_workers=1)
model = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 1))
optimizer = torch.optim.RMSprop(model.parameters(), 1e-2)
step = 0
if path.exists():
    saved = torch.load(path)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
    if os.environ.get("LACKS") != "epoch":
        sampler.epoch = step // 4
while step < 12:
    had = step % 4
    for number, (rows, wanted) in enumerate(loader):
        if number < had:
            continue
        optimizer.zero_grad()
        (model(rows).squeeze(1) - wanted).square().sum().backward()
        optimizer.step()
        step += 1
        if step % 2 == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)
