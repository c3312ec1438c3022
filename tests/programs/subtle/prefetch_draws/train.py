# {"cause": "thread-race", "file": "prefetch.py", "culprit": "noise = torch.randn(batch.shape)", "options": ["--vary", "rerun"]}
"""Training with dropout, while a thread prepares the next batches with noise: one generator for both."""
import torch
from torch import nn

from prefetch import Prefetcher


def main(steps=60):
    torch.manual_seed(0)
    data = torch.randn(256, 8)
    target = data.sin().sum(1, keepdim=True)
    net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1))
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    batches = Prefetcher([(data[i : i + 32], target[i : i + 32]) for i in range(0, 256, 32)], steps)
    for x, y in batches:
        loss = nn.functional.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
