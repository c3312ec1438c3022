# {"cause": "none", "differs": [], "culprit_line": null, "source": "common practice", "reads": []}
# a thread writes what the training tells it, with the time and its own number
import queue
import sys
import threading
import time
import uuid
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


told = queue.Queue()


def write():
    name = uuid.uuid4().hex
    while (item := told.get()) is not None:
        print(time.time(), name, threading.get_ident(), item, file=sys.stderr)


writer = threading.Thread(target=write)
writer.start()
x = torch.randn(64, 6)
for step in range(12):
    told.put(train(x, x.sum(1, keepdim=True)))
told.put(None)
writer.join()
print("RESULT", digest(*model.parameters()))
