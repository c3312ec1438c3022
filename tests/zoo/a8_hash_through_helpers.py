# {"cause": "hash-order", "differs": ["PYTHONHASHSEED"], "culprit_line": 17, "source": "seeds per worker name", "reads": []}
# a seed is made of hash() in a helper, handed on, doubled, and given to torch in another helper
import hashlib
import torch
from torch import nn

def digest(*tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().contiguous().numpy().tobytes())
    return h.hexdigest()[:16]


def seed_of(name, base):
    value = base + len(name)
    for _ in range(1):
        value += hash(name) % 1000
    return value


def seed_all(number):
    label = f"run of {number} begins"
    torch.manual_seed(number)
    return len(label)


unused = hash("a label of the run") % 7
number = seed_of("worker-0", 5)
other = number * 2
seed_all(other)
model = nn.Linear(8, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    opt.zero_grad()
    model(torch.randn(4, 8)).pow(2).mean().backward()
    opt.step()
print("RESULT", digest(*model.parameters()))
