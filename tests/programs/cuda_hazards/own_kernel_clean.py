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

SOURCE = """
extern "C" __global__ void add_rows(const float *values, float *sums, int count) {
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place < 50)
        for (int i = place; i < count; i += 50) sums[place] += values[i];
}
"""
kernel = torch.cuda._compile_kernel(SOURCE, "add_rows")
torch.manual_seed(0)
model = nn.Linear(50, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
count = 200000
values = torch.randn(count).to(device)
for step in range(3):
    sums = torch.zeros(50, device=device)
    kernel(grid=((count + 255) // 256, 1, 1), block=(256, 1, 1), args=[values, sums, count])
    loss = (model(sums) - 1).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("RESULT", digest(*model.parameters()))
