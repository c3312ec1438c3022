"""A loop with modules and callbacks, as Lightning has it; it saves in the middle of an epoch.

LACKS: numpy (its generator), position (what is left of the epoch is taken from a permutation drawn anew).
"""

import os
from pathlib import Path

import numpy as np
import torch
from torch import nn

LACKS = os.environ.get("LACKS", "")


class Regression(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))

    def training_step(self, batch):
        x, y = batch
        return nn.functional.smooth_l1_loss(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


class Checkpoint:
    """A callback."""

    def __init__(self, path):
        self.path = path

    def on_step_end(self, loop):
        if loop.step % 3 == 0:
            state = {"model": loop.module.state_dict(), "optimizer": loop.optimizer.state_dict(), "step": loop.step}
            order = None if LACKS == "position" else loop.order
            generators = {"rng": torch.get_rng_state(), "numpy": np.random.get_state(legacy=False)}
            torch.save({**state, **generators, "order": order}, self.path)

    def on_start(self, loop):
        if not self.path.exists():
            return
        saved = torch.load(self.path, weights_only=False)
        loop.module.load_state_dict(saved["model"])
        loop.optimizer.load_state_dict(saved["optimizer"])
        loop.step, loop.order = saved["step"], saved["order"]
        torch.set_rng_state(saved["rng"])
        if LACKS != "numpy":
            np.random.set_state(saved["numpy"])


class Loop:
    def __init__(self, module, callbacks, x, y):
        self.module, self.callbacks = module, callbacks
        self.x, self.y = x, y
        self.optimizer = module.configure_optimizers()
        self.step, self.order = 0, None

    def batch(self):
        at = self.step % 4
        if at == 0 or self.order is None:
            self.order = torch.randperm(len(self.x))
        chosen = self.order[8 * at : 8 * at + 8]
        return self.x[chosen] * float(np.random.uniform(0.9, 1.1)), self.y[chosen]

    def fit(self, steps):
        for each in self.callbacks:
            each.on_start(self)
        while self.step < steps:
            loss = self.module.training_step(self.batch())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.step += 1
            for each in self.callbacks:
                each.on_step_end(self)


np.random.seed(5)
torch.manual_seed(5)
data = torch.randn(32, 5)
path = Path(os.environ["SAMERUN_CHECKPOINTS"]) / "last.ckpt"
Loop(Regression(), [Checkpoint(path)], data, data.sin().sum(1, keepdim=True)).fit(12)
