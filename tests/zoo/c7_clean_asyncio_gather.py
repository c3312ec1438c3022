# {"cause": "none", "differs": [], "culprit_line": null, "source": "common practice", "reads": []}
# batches fetched with asyncio, gathered in order
import asyncio
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


async def fetch(number):
    await asyncio.sleep(0.001 * (7 - number))
    return torch.linspace(-1, 1, 48).reshape(8, 6) * (number + 1)


async def main():
    for batch in await asyncio.gather(*(fetch(number) for number in range(7))):
        train(batch, batch.sum(1, keepdim=True))


asyncio.run(main())
print("RESULT", digest(*model.parameters()))
