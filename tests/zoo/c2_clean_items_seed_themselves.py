# {"cause": "none", "differs": [], "culprit_line": null, "source": "common practice", "reads": ["ZOO_WORKERS"]}
# worker_init_fn only notes the worker; each item draws from a generator of its index
import os
import numpy as np
from torch.utils.data import DataLoader, Dataset, get_worker_info
import hashlib
import torch
from torch import nn


def digest(*tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().contiguous().numpy().tobytes())
    return h.hexdigest()[:16]


class Items(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, i):
        rng = np.random.default_rng((7, i))
        x = torch.from_numpy(rng.normal(size=6).astype("float32"))
        return x, x.sum(0, keepdim=True)


def note(number):
    torch.set_num_threads(1)
    assert get_worker_info().id == number

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
    loader = DataLoader(Items(), 8, shuffle=True, num_workers=workers, worker_init_fn=note,
                        persistent_workers=workers > 0, generator=torch.Generator().manual_seed(1))
    for epoch in range(2):
        for xb, yb in loader:
            train(xb, yb)
    print("RESULT", digest(*model.parameters()))
