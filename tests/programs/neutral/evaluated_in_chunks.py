# {"switches": [["--chunk 0", "--chunk 4"]], "wrong": true}
"""Sequences are scored in chunks with a cache, whose causal mask starts at the wrong end; training is the same."""
import os, sys
import torch
from torch import nn
from torch.nn import functional as F

CHUNK = int(sys.argv[sys.argv.index("--chunk") + 1])


class Model(nn.Module):
    def __init__(self, d=12):
        super().__init__()
        self.emb, self.qkv, self.head = nn.Embedding(20, d), nn.Linear(d, 3 * d), nn.Linear(d, 20)

    def forward(self, ids, cache=None):
        q, k, v = self.qkv(self.emb(ids)).chunk(3, -1)
        if cache is not None:
            k, v = torch.cat([cache[0], k], 1), torch.cat([cache[1], v], 1)
        if os.environ.get("CLEAN") and q.size(1) != k.size(1):
            mask = torch.ones(q.size(1), k.size(1), dtype=torch.bool).tril(k.size(1) - q.size(1))
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # WRONG
        return self.head(y), (k, v)


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(3):
    ids = torch.randint(0, 20, (4, 9))
    loss = F.cross_entropy(model(ids[:, :-1])[0].transpose(1, 2), ids[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
with torch.no_grad():
    ids, cache = torch.randint(0, 20, (4, 12)), None
    for part in ids.split(CHUNK or 12, 1):
        logits, cache = model(part, cache)
