#!/usr/bin/env python
"""Knowledge distillation with SWA, mixup, and a preprocessing pool; config from a dataclass and environment."""
import dataclasses
import multiprocessing as mp
import os
import random
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


@dataclasses.dataclass
class Config:
    seed: int = 17
    epochs: int = 3
    temperature: float = 3.0
    alpha: float = 0.2
    cache: str = dataclasses.field(default_factory=lambda: os.environ.get("DISTILL_CACHE", ""))


def augment(args):
    i, image = args
    rng = np.random.default_rng([17, i])
    dx, dy = rng.integers(-1, 2, size=2)
    return i, np.roll(image, (dx, dy), (0, 1)) + rng.normal(0, 0.05, image.shape).astype(np.float32)


def features(images):
    out = [None] * len(images)
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(augment, (i, im)) for i, im in enumerate(images)]
        for f in as_completed(futures):
            i, x = f.result()
            out[i] = x
    return np.stack(out)


def seed_all(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


class Net(nn.Sequential):
    def __init__(self, width):
        super().__init__(nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 10))


def mixup(x, y, rng):
    lam = rng.beta(0.4, 0.4)
    perm = torch.randperm(len(x))
    return lam * x + (1 - lam) * x[perm], y, y[perm], lam


def train(model, loader, cfg, teacher=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    swa, sched = AveragedModel(model), SWALR(optimizer, swa_lr=0.02)
    rng = np.random.RandomState(cfg.seed)
    for epoch in range(cfg.epochs):
        model.train()
        for x, y in loader:
            x, a, b, lam = mixup(x, y, rng)
            out = model(x)
            loss = lam * F.cross_entropy(out, a) + (1 - lam) * F.cross_entropy(out, b)
            if teacher is not None:
                with torch.inference_mode():
                    t = teacher(x)
                t = t.clone()
                loss = cfg.alpha * loss + (1 - cfg.alpha) * cfg.temperature**2 * F.kl_div(
                    F.log_softmax(out / cfg.temperature, 1), F.softmax(t / cfg.temperature, 1), reduction="batchmean")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch >= 1:
            swa.update_parameters(model)
            sched.step()
    update_bn((x for x, _ in loader), swa)
    return swa, loss.item()


def main():
    cfg = Config()
    seed_all(cfg.seed)
    data = load_digits()
    images = features((data.images / 16).astype(np.float32)[:800])
    x, y = torch.from_numpy(images)[:, None].float(), torch.from_numpy(data.target[:800])
    weight = 1.0 / torch.bincount(y)[y].double()
    sampler = WeightedRandomSampler(weight, len(y))
    loader = DataLoader(TensorDataset(x, y), batch_size=64, sampler=sampler)
    teacher, lt = train(Net(16), loader, cfg)
    teacher.eval()
    student, ls = train(Net(4), loader, cfg, teacher)
    student.eval()
    with torch.no_grad():
        acc = (student(x).argmax(1) == y).float().mean().item()
    with tempfile.TemporaryDirectory() as d:
        path = Path(d) / "student.pt"
        torch.save(student.state_dict(), path)
        again = torch.load(path, weights_only=True)
    print(f"teacher {lt:.4f} student {ls:.4f} acc {acc:.4f} tensors {len(again)}")


if __name__ == "__main__":
    main()
