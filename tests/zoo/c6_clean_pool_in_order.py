# {"cause": "none", "differs": [], "culprit_line": null, "source": "common practice", "reads": []}
# features computed by a pool of threads, taken in the order in which they were asked for
from concurrent.futures import ThreadPoolExecutor
import hashlib
import torch
from torch import nn


def digest(*tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().contiguous().numpy().tobytes())
    return h.hexdigest()[:16]


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.02)


def train(xb, yb):
    loss = (model(xb) - yb).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


def features(number):
    own = torch.Generator().manual_seed(number)
    return torch.randn(8, 6, generator=own).clamp(-1, 1)  # tanh may round otherwise where threads call it first at once


with ThreadPoolExecutor(3) as pool:
    for batch in pool.map(features, range(16)):
        train(batch, batch.sum(1, keepdim=True))
print("RESULT", digest(*model.parameters()))
