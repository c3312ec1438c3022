"""A trainer class that saves at the end of each epoch. LACKS: optimizer, early (generators put back too early)."""

import os
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

LACKS = os.environ.get("LACKS", "")


class Trainer:
    def __init__(self, folder):
        self.path = Path(folder) / "epoch.pt"
        torch.manual_seed(3)
        x = torch.randn(48, 6)
        self.data = TensorDataset(x, x.sum(1, keepdim=True))
        saved = torch.load(self.path) if self.path.exists() else None
        if saved and LACKS == "early":
            torch.set_rng_state(saved["rng"])  # the model below is made with numbers of this generator
        self.model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.epoch = 0
        if saved:
            self.restore(saved)

    def restore(self, saved):
        self.model.load_state_dict(saved["model"])
        if LACKS != "optimizer":
            self.optimizer.load_state_dict(saved["optimizer"])
        self.epoch = saved["epoch"]
        if LACKS != "early":
            torch.set_rng_state(saved["rng"])

    def save(self):
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "epoch": self.epoch}
        torch.save({**state, "rng": torch.get_rng_state()}, self.path)

    def fit(self, epochs):
        loader = DataLoader(self.data, batch_size=16, shuffle=True)
        while self.epoch < epochs:
            for x, y in loader:
                self.optimizer.zero_grad()
                nn.functional.mse_loss(self.model(x), y).backward()
                self.optimizer.step()
            self.epoch += 1
            self.save()


Trainer(os.environ["SAMERUN_CHECKPOINTS"]).fit(4)
