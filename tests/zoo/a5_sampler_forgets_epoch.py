# {"cause": "resume-position", "differs": ["resume"], "culprit_line": 52, "source": "Lightning-AI/pytorch-lightning#18132", "reads": ["ZOO_STOP_AT", "ZOO_CKPT", "ZOO_RESUME"], "stop_at": 2}
# the sampler counts its epochs itself and begins at 0 again after a resume
import hashlib, os
import torch
from torch import nn
from torch.utils.data import Sampler

def digest(*tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().contiguous().numpy().tobytes())
    return h.hexdigest()[:16]


class EpochSampler(Sampler):
    def __init__(self, n, size):
        self.n, self.size, self.epoch = n, size, 0

    def __len__(self):
        return self.n // self.size

    def __iter__(self):
        g = torch.Generator().manual_seed(100 + self.epoch)
        self.epoch += 1
        yield from torch.randperm(self.n, generator=g).split(self.size)


stop_at, ckpt, resume = int(os.environ.get("ZOO_STOP_AT", "0")), os.environ.get("ZOO_CKPT"), os.environ.get("ZOO_RESUME")
torch.manual_seed(0)
g = torch.Generator().manual_seed(1234)
x = torch.randn(128, 8, generator=g)
y = x[:, :1] * x[:, 1:2]
sampler = EpochSampler(len(x), 32)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.05)


def train_one(rows):
    opt.zero_grad()
    loss = (model(x[rows]) - y[rows]).pow(2).mean()
    loss.backward()
    opt.step()


start = 0
if resume:
    state = torch.load(resume)
    model.load_state_dict(state["model"])
    opt.load_state_dict(state["opt"])
    start = state["epoch"]
for epoch in range(start, 4):
    for rows in sampler:
        train_one(rows)
    if stop_at == epoch + 1:
        torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "epoch": epoch + 1}, ckpt)
        break
print("RESULT", digest(*model.parameters()))
