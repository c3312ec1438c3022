# {"cause": "none", "differs": [], "culprit_line": null, "source": "common practice", "reads": []}
# one process of the program's own makes the batches
import multiprocessing
import hashlib
import torch
from torch import nn


def digest(*tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().contiguous().numpy().tobytes())
    return h.hexdigest()[:16]


def produce(queue, count):
    own = torch.Generator().manual_seed(3)
    for _ in range(count):
        queue.put(torch.randn(8, 6, generator=own).tolist())
    queue.put(None)

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.02)


def train(xb, yb):
    loss = (model(xb) - yb).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


if __name__ == "__main__":
    queue = multiprocessing.Queue(4)
    process = multiprocessing.Process(target=produce, args=(queue, 10))
    process.start()
    while (rows := queue.get()) is not None:
        batch = torch.tensor(rows)
        train(batch, batch.sum(1, keepdim=True))
    process.join()
    print("RESULT", digest(*model.parameters()))
