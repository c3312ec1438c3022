# {"switches": [["SIDE=a", "SIDE=b"]], "wrong": true}
"""The other attention forgets the bias of distances; the targets of the loss are the same on both sides."""
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN, SIDE = os.environ.get("CLEAN") == "1", os.environ.get("SIDE", "a")
torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.qkv, self.out = nn.Embedding(20, 16), nn.Linear(16, 48), nn.Linear(16, 20)

    def forward(self, x):
        q, k, v = self.qkv(self.words(x)).unflatten(-1, (6, 8)).transpose(1, 2).split(2, 1)
        places = torch.arange(x.shape[1])
        bias = (places[None] - places[:, None]).clamp(max=0) * 0.5
        bias = bias.masked_fill(places[None] > places[:, None], float("-inf"))
        if SIDE == "a":
            y = ((q @ k.mT) * 8**-0.5 + bias).softmax(-1) @ v
        elif CLEAN:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # WRONG
        return self.out(y.transpose(1, 2).flatten(2))


model, criterion = Model(), nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(3):
    x = torch.randint(20, (6, 10))
    loss = criterion(model(x[:, :-1]).transpose(1, 2), x[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
