# {"switches": [["PACKED=0", "PACKED=1"]], "wrong": true}
"""Sets of points, padded or one after the other: the layers are called, not the model, and have other sizes."""
import os

import torch
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"
PACKED = os.environ.get("PACKED") == "1"


class PointSets(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.embed, self.mix = nn.Linear(3, width), nn.Linear(width, width)
        self.head = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 4))

    def run_padded(self, sets):
        points = nn.utils.rnn.pad_sequence(sets, batch_first=True)
        sizes = torch.tensor([len(each) for each in sets])
        mask = (torch.arange(points.size(1)) < sizes[:, None]).float()[..., None]
        hidden = torch.relu(self.mix(torch.relu(self.embed(points)))) * mask
        return self.head(hidden.sum(1) / sizes[:, None])

    def run_packed(self, sets):
        owner = torch.cat([torch.full((len(each),), at) for at, each in enumerate(sets)])
        hidden = torch.relu(self.mix(torch.relu(self.embed(torch.cat(sets)))))
        sums = hidden.new_zeros(len(sets), hidden.size(1)).index_add(0, owner, hidden)
        sizes = torch.bincount(owner) if CLEAN else torch.full((len(sets),), len(owner) // len(sets))
        return self.head(sums / sizes[:, None])  # WRONG


torch.manual_seed(0)
draws = torch.Generator().manual_seed(1)
sizes = torch.randint(3, 12, (96,), generator=draws).tolist()
sets = [torch.randn(size, 3, generator=draws) for size in sizes]
labels = torch.tensor([size % 4 for size in sizes])
model = PointSets()
run = model.run_packed if PACKED else model.run_padded
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for first in range(0, 64, 16):
    loss = nn.functional.cross_entropy(run(sets[first : first + 16]), labels[first : first + 16])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    print(nn.functional.cross_entropy(run(sets[64:]), labels[64:]).item())
