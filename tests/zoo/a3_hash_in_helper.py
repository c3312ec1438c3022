# {"cause": "hash-order", "differs": ["PYTHONHASHSEED"], "culprit_line": 18, "source": "huggingface/datasets#2737", "reads": []}
# a helper makes a bucket of a word with hash(); the table of embeddings follows it
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
    word = word.strip().lower()
    return hash(word) % size


def encode(words):
    return torch.tensor([bucket(word) for word in words])


torch.manual_seed(0)
ids = encode(WORDS)
model = nn.Sequential(nn.Embedding(97, 8), nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
target = torch.linspace(-1, 1, len(WORDS)).unsqueeze(1)
for step in range(8):
    opt.zero_grad()
    (model(ids) - target).pow(2).mean().backward()
    opt.step()
print("RESULT", digest(*model.parameters()))
