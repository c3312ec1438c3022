# {"cause": "none", "differs": [], "culprit_line": null, "source": "common practice", "reads": []}
# a compiled model beside a thread that only waits
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


done = threading.Event()
threading.Thread(target=done.wait, daemon=True).start()
model.forward = torch.compile(model.forward, backend="aot_eager")
x = torch.randn(32, 6)
for step in range(4):
    train(x, x.sum(1, keepdim=True))
done.set()
print("RESULT", digest(*model.parameters()))
