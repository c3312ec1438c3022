"""A loader with a generator and samples augmented by another. LACKS: loader, augment, place (the epoch begins anew)."""

import os
import random
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LACKS = os.environ.get("LACKS", "")


class Shifted(Dataset):
    def __init__(self):
        self.x = torch.linspace(-1, 1, 40).unsqueeze(1)
        self.rng = random.Random(8)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i] + self.rng.gauss(0, 0.01), self.x[i].cos()


path = Path(os.environ["SAMERUN_CHECKPOINTS"]) / "c.pt"
torch.manual_seed(1)
data = Shifted()
order = torch.Generator().manual_seed(7)
loader = DataLoader(data, 8, shuffle=True, generator=order)
model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
epoch = skip = 0
if path.exists():
    saved = torch.load(path, weights_only=False)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    epoch, skip = saved["epoch"], saved["skip"]
    if LACKS != "loader":
        order.set_state(saved["order"])
    if LACKS != "augment":
        data.rng.setstate(saved["augment"])
while epoch < 3:
    started = order.get_state(), data.rng.getstate()
    for number, (x, y) in enumerate(loader):
        if number < skip:
            continue
        optimizer.zero_grad()
        (model(x) - y).abs().mean().backward()
        optimizer.step()
        if number == 2:
            parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            generators = {"order": started[0], "augment": started[1]}
            torch.save({**parts, **generators, "skip": 0 if LACKS == "place" else 3}, path)
    epoch, skip = epoch + 1, 0
