# {"cause": "none", "differs": [], "culprit_line": null, "source": "common practice", "reads": []}
# buckets of words by crc32, in a helper; sets are sorted
import zlib
import hashlib
import torch
from torch import nn


def digest(*tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().contiguous().numpy().tobytes())
    return h.hexdigest()[:16]


WORDS = "the quick brown fox jumps over a lazy dog while seven wizards brew odd potions".split()


def bucket(word, size=97):
    return zlib.crc32(word.strip().lower().encode()) % size


torch.manual_seed(0)
ids = torch.tensor([bucket(word) for word in sorted(set(WORDS))])
model = nn.Sequential(nn.Embedding(97, 8), nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    opt.zero_grad()
    (model(ids) - 1).pow(2).mean().backward()
    opt.step()
print("RESULT", digest(*model.parameters()))
