# {"cause": "thread-race", "differs": ["rerun"], "culprit_line": 24, "source": "pytorch/pytorch#33296", "reads": []}
# a thread that prepares augmented batches ahead draws from the generator that dropout draws from
import hashlib, queue, threading
import torch
from torch import nn
import torch.nn.functional as F

def digest(*tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().contiguous().numpy().tobytes())
    return h.hexdigest()[:16]


class Ahead(threading.Thread):
    def __init__(self, x, y, steps):
        super().__init__(daemon=True)
        self.x, self.y, self.steps = x, y, steps
        self.ready = queue.Queue(maxsize=3)

    def run(self):
        for step in range(self.steps):
            rows = slice(16 * (step % 8), 16 * (step % 8) + 16)
            noisy = self.x[rows] + 0.05 * torch.randn_like(self.x[rows])
            self.ready.put((noisy, self.y[rows]))


torch.manual_seed(0)
x = torch.randn(128, 6)
y = x.prod(1, keepdim=True)
model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
ahead = Ahead(x, y, 60)
ahead.start()
for step in range(60):
    xb, yb = ahead.ready.get()
    loss = F.mse_loss(model(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
print("RESULT", digest(*model.parameters()))
