# {"cause": "worker-seed", "differs": ["workers"], "culprit_line": 32, "source": "pytorch/pytorch#62494", "reads": ["ZOO_WORKERS"]}
# the loader's generator is the dataset's too: without workers the draws of items move the order of the next epoch
import hashlib, os
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

def digest(*tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().contiguous().numpy().tobytes())
    return h.hexdigest()[:16]


class Jittered(Dataset):
    def __init__(self, generator, n=64):
        g = torch.Generator().manual_seed(3)
        self.x = torch.randn(n, 6, generator=g)
        self.generator = generator

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i] + 0.1 * torch.randn(6, generator=self.generator), self.x[i].sum()


if __name__ == "__main__":
    workers = int(os.environ.get("ZOO_WORKERS", "0"))
    torch.manual_seed(0)
    order = torch.Generator()
    order.manual_seed(42)
    loader = DataLoader(Jittered(order), batch_size=8, shuffle=True, num_workers=workers, generator=order)
    model = nn.Linear(6, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.02)
    for epoch in range(2):
        for xb, yb in loader:
            opt.zero_grad()
            (model(xb).squeeze(1) - yb).pow(2).mean().backward()
            opt.step()
    print("RESULT", digest(*model.parameters()))
