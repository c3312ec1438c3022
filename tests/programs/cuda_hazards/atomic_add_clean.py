# The same without the hazard.
import hashlib
import os

import torch
from torch import nn

device = os.environ.get("ZOO_DEVICE", "cuda")


def digest(*tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().cpu().contiguous().numpy().tobytes())
    return h.hexdigest()[:16]

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
torch.use_deterministic_algorithms(True)

torch.manual_seed(0)
model = nn.Linear(16, 16).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
index, values = torch.randint(0, 50, (200000,)).to(device), torch.randn(200000, 16).to(device)
for step in range(3):
    summed = torch.zeros(50, 16, device=device).index_add_(0, index, values)
    loss = (model(summed) - 1).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("RESULT", digest(*model.parameters()))
