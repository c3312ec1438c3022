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


def collate(sequences):
    longest = max(len(sequence) for sequence in sequences)
    batch = torch.zeros(len(sequences), longest, device=device)
    for row, sequence in enumerate(sequences):
        batch[row, : len(sequence)] = sequence
    return batch


torch.manual_seed(0)
sequences = [torch.randn(2 + (i * 5) % 17).to(device) for i in range(48)]
model = nn.Linear(1, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for first in range(0, 48, 16):
    batch = collate(sequences[first : first + 16])
    loss = model(batch.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("RESULT", digest(*model.parameters()))
