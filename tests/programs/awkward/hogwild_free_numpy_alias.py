"""Changes a tensor's memory behind torch's back, through NumPy and a plain buffer."""

import numpy as np
import torch

torch.manual_seed(1)
weight = torch.randn(4, 4)
alias = weight.numpy()
shared = np.zeros(4, dtype=np.float32)
view = torch.from_numpy(shared)
buffer = bytearray(16)
raw = torch.frombuffer(buffer, dtype=torch.float32)

for step in range(4):
    output = weight @ (view + 1) + raw
    alias[step] *= 0.5
    shared += step
    buffer[4 * step : 4 * step + 4] = np.float32(step + 1).tobytes()
    print(step, output.sum().item(), (weight @ (view + 1) + raw).sum().item())

weight.data.mul_(2)
print(alias.sum().item(), weight._version, np.shares_memory(alias, weight.numpy()))
weight.set_(torch.ones(2, 2).untyped_storage(), 0, (2, 2))
print(weight.tolist(), weight.sum().item(), float(alias[0, 0]) != 1.0)
