# {"cause": "worker-seed", "differs": ["workers"], "culprit_line": 28, "source": "pytorch/pytorch#5059", "reads": ["ZOO_WORKERS"]}
# worker_init_fn seeds NumPy with a constant: every worker draws the same augmentation, again in each epoch
import hashlib, os
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

def digest(*tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().contiguous().numpy().tobytes())
    return h.hexdigest()[:16]


class Crops(Dataset):
    def __init__(self, n=64):
        g = torch.Generator().manual_seed(3)
        self.x = torch.randn(n, 6, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i] * float(np.random.uniform(0.5, 1.5)), self.x[i].sum()

def seed_worker(number):
    np.random.seed(1234)


if __name__ == "__main__":
    workers = int(os.environ.get("ZOO_WORKERS", "2"))
    torch.manual_seed(0)
    loader = DataLoader(Crops(), batch_size=8, shuffle=True, num_workers=workers, worker_init_fn=seed_worker)
    model = nn.Linear(6, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.02)
    for epoch in range(2):
        for xb, yb in loader:
            opt.zero_grad()
            (model(xb).squeeze(1) - yb).pow(2).mean().backward()
            opt.step()
    print("RESULT", digest(*model.parameters()))
