# {"switches": [["SIDE=a", "SIDE=b"]], "wrong": true}
"""The other attention has another scale."""
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN, SIDE = os.environ.get("CLEAN") == "1", os.environ.get("SIDE", "a")
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.qkv, self.head = nn.Embedding(20, 16), nn.Linear(16, 48), nn.Linear(16, 20)

    def forward(self, x, lengths):
        b, t = x.shape
        q, k, v = (y.view(b, t, 2, 8).transpose(1, 2) for y in self.qkv(self.words(x)).split(16, 2))
        mask = (torch.arange(t)[None, :] < lengths[:, None])[:, None, None, :]
        if SIDE == "a":
            out = (q @ k.transpose(2, 3) / 8**0.5).masked_fill(~mask, float("-inf")).softmax(-1) @ v
        else:
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=8**-0.5 if CLEAN else 1.0)  # WRONG
        return self.head(out.transpose(1, 2).reshape(b, t, 16))


model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(4):
    x, lengths = torch.randint(20, (6, 8)), torch.randint(2, 9, (6,))
    loss = F.cross_entropy(model(x, lengths).flatten(0, 1), x.roll(1, 1).flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
