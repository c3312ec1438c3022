# {"cause": "none", "differs": [], "culprit_line": null, "source": "common practice", "reads": ["ZOO_WORKERS"]}
# an IterableDataset that workers share out by number, put in order by the program
import os
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
import hashlib
import torch
from torch import nn


def digest(*tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().contiguous().numpy().tobytes())
    return h.hexdigest()[:16]


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for number in range(first, 24, step):
            yield number, torch.full((6,), number / 24).sin()

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.02)


def train(xb, yb):
    loss = (model(xb) - yb).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


if __name__ == "__main__":
    workers = int(os.environ.get("ZOO_WORKERS", "2"))
    for epoch in range(2):
        rows = dict(item for item in DataLoader(Stream(), batch_size=None, num_workers=workers))
        batch = torch.stack([rows[number] for number in sorted(rows)])
        train(batch, batch.sum(1, keepdim=True))
    print("RESULT", digest(*model.parameters()))
