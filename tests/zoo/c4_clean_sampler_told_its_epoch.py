# {"cause": "none", "differs": [], "culprit_line": null, "source": "common practice", "reads": ["ZOO_STOP_AT", "ZOO_CKPT", "ZOO_RESUME"], "stop_at": 2}
# the sampler is told its epoch, after a resume too
import os
from torch.utils.data import DataLoader, Sampler, TensorDataset
import hashlib
import torch
from torch import nn


def digest(*tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().contiguous().numpy().tobytes())
    return h.hexdigest()[:16]


class Epochs(Sampler):
    def __init__(self, n):
        self.n, self.epoch = n, 0

    def __len__(self):
        return self.n

    def __iter__(self):
        return iter(torch.randperm(self.n, generator=torch.Generator().manual_seed(self.epoch)).tolist())


stop_at, ckpt, resume = int(os.environ.get("ZOO_STOP_AT", "0")), os.environ.get("ZOO_CKPT"), os.environ.get("ZOO_RESUME")
torch.manual_seed(0)
x = torch.randn(64, 6)
sampler = Epochs(64)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), 16, sampler=sampler,
                    generator=torch.Generator().manual_seed(2))
model = nn.Linear(6, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.02)
start = 0
if resume:
    state = torch.load(resume)
    model.load_state_dict(state["model"])
    opt.load_state_dict(state["opt"])
    start = state["epoch"]
for epoch in range(start, 4):
    sampler.epoch = epoch
    for xb, yb in loader:
        opt.zero_grad()
        (model(xb) - yb).pow(2).mean().backward()
        opt.step()
    if stop_at == epoch + 1:
        torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "epoch": epoch + 1}, ckpt)
        break
print("RESULT", digest(*model.parameters()))
