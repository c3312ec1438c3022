# {"cause": "unseeded-python", "file": "signals.py", "culprit": "self.rng = random.Random()", "options": ["--vary", "rerun"]}
"""A small 1-d convolutional network; everything is seeded, says its author."""
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from signals import Signals


def seed_worker(worker_id):
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)


def main():
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    loader = DataLoader(Signals(96), batch_size=16, shuffle=True, num_workers=2, worker_init_fn=seed_worker,
                        generator=torch.Generator().manual_seed(0))
    net = nn.Sequential(nn.Conv1d(1, 8, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 3))
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(2):
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"epoch {epoch}: {loss.item():.6f}")


if __name__ == "__main__":
    main()
