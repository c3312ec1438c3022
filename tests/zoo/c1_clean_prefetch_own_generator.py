# {"cause": "none", "differs": [], "culprit_line": null, "source": "common practice", "reads": []}
# a thread prepares noisy batches with a generator of its own, beside dropout
import queue
import threading
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


x = torch.randn(64, 6)
ready = queue.Queue(3)


def prepare():
    own = torch.Generator().manual_seed(5)
    for step in range(24):
        rows = x[8 * (step % 8) : 8 * (step % 8) + 8]
        ready.put(rows + 0.1 * torch.randn(rows.shape, generator=own))
    ready.put(None)


threading.Thread(target=prepare, daemon=True).start()
while (batch := ready.get()) is not None:
    train(batch, batch.sum(1, keepdim=True))
print("RESULT", digest(*model.parameters()))
