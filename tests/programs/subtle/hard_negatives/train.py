# {"cause": "hash-order", "file": "mining.py", "culprit": "for name in seen - set(easy):", "options": ["--vary", "rerun,hash_seed"]}
"""Metric learning on named classes; from step 60 on, hard classes are mined."""
import torch
from torch import nn

from mining import Miner

NAMES = ["fern", "moss", "oak", "birch", "heather", "ivy", "reed", "alder"]


def main(steps=80):
    torch.manual_seed(3)
    centres = torch.randn(len(NAMES), 12)
    net = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 4))
    opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
    miner = Miner()
    for step in range(steps):
        labels = torch.randint(len(NAMES), (6,)) if step < 60 else torch.tensor(miner.hardest(NAMES, 6))
        anchors = net(centres[labels] + 0.3 * torch.randn(len(labels), 12))
        others = net(centres[labels] + 0.3 * torch.randn(len(labels), 12))
        distances = torch.cdist(anchors, others)
        loss = nn.functional.cross_entropy(-distances, torch.arange(len(labels)))
        opt.zero_grad()
        loss.backward()
        opt.step()
        for at, label in enumerate(labels.tolist()):
            miner.note(NAMES[label], step, distances[at, at].item())
    print(f"loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
