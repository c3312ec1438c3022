"""Trains 12 steps, saves every second one, and takes up what it finds in SAMERUN_CHECKPOINTS.

LACKS: what its checkpoint does not hold: rng, loader or scheduler. ON_TERM=1: SIGTERM saves too, and ends it
in order. STOP, FROM and TO do the same by hand.
"""

import os
import random
import signal
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

import samerun
from samerun.data import DataLoader

lacks = os.environ.get("LACKS", "")
path = Path(os.environ["SAMERUN_CHECKPOINTS"]) / "last.pt"
samerun.seed_everything(1)
torch.set_num_threads(1)
data = torch.randn(48, 5)
loader = DataLoader([(x, x.sum()) for x in data], 8, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)
parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}
parts = {name: part for name, part in parts.items() if name != lacks}
step, ending = 0, []


def save():
    samerun.checkpoint.save(path, **parts, extra=step)


def on_term(number, frame):
    ending.append(number)


if os.environ.get("ON_TERM"):
    signal.signal(signal.SIGTERM, on_term)
if path.exists():
    step = samerun.checkpoint.load(path, **parts, rng=lacks != "rng")
if "--fail-on-resume" in sys.argv and step:
    raise SystemExit(3)
while step < 12:
    for x, y in loader:
        loss = F.mse_loss(model(x + random.gauss(0, 0.01)).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        step += 1
        if step % 2 == 0 or ending:
            save()
        if ending or step == int(os.environ.get("STOP", 0)):
            raise SystemExit(0)
        if step == 12:
            break
