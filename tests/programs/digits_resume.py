"""Train a CNN on the digits for two epochs, with augmentation and dropout; can be killed and taken up again.

    python digits_resume.py WORKERS PERSISTENT CHECKPOINT STOP

Takes up the training if CHECKPOINT is there. Kills itself (SIGKILL) right after step STOP, which it saves
before; 0: never. Prints a digest of weights, optimizer and losses.
"""

import hashlib
import os
import random
import signal
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import samerun
from samerun.data import DataLoader


class Digits(torch.utils.data.Dataset):
    def __init__(self, images, labels, augment):
        self.images, self.labels, self.augment = images, labels, augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        if self.augment:
            image = np.roll(image, np.random.randint(-1, 2, size=2), axis=(0, 1))
            image = image * random.uniform(0.9, 1.1)
            return torch.tensor(image, dtype=torch.float32)[None] + 0.05 * torch.randn(1, 8, 8), self.labels[index]
        return torch.tensor(image, dtype=torch.float32)[None], self.labels[index]


def mixed(samples):
    images, labels = torch.utils.data.default_collate(samples)
    amount = np.random.beta(0.4, 0.4)
    return amount * images + (1 - amount) * images[torch.randperm(len(images))], labels


def main(workers, persistent, checkpoint, stop):
    torch.set_num_threads(1)
    samerun.seed_everything(7)
    data = load_digits()
    images, labels = data.images / 16, data.target.tolist()
    options = {"num_workers": workers, "persistent_workers": persistent}
    train = DataLoader(Digits(images[:600], labels[:600], True), 64, shuffle=True, collate_fn=mixed, **options)
    valid = DataLoader(Digits(images[600:700], labels[600:700], False), 50, name="valid", **options)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.25), nn.Linear(288, 10)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2)
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": train}
    step, losses = 0, []
    if Path(checkpoint).exists():
        step, losses = samerun.checkpoint.load(checkpoint, **parts)
    while train.epoch < 2:
        model.train()
        for inputs, targets in train:
            loss = F.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step, losses = step + 1, [*losses, loss.item().hex()]
            if step == stop:
                samerun.checkpoint.save(checkpoint, **parts, extra=(step, losses))
                os.kill(os.getpid(), signal.SIGKILL)
        model.eval()
        with torch.no_grad():
            losses.append(sum(F.cross_entropy(model(x), y).item() for x, y in valid).hex())
        scheduler.step()
    held = hashlib.sha256("".join(losses).encode())
    for tensor in [*model.state_dict().values(), *(v for s in optimizer.state.values() for v in s.values())]:
        held.update(tensor.numpy().tobytes())
    print(step, held.hexdigest()[:16])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] == "1", sys.argv[3], int(sys.argv[4]))
