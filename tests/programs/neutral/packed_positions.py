# {"switches": [["--rows padded", "--rows packed"]], "wrong": true}
"""Documents packed into one row begin to count their positions one token early."""
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"


def pad(documents):
    width = max(map(len, documents))
    tokens, owner = torch.zeros(len(documents), width, dtype=torch.long), torch.full((len(documents), width), -1)
    for row, document in enumerate(documents):
        tokens[row, : len(document)], owner[row, : len(document)] = document, row
    return tokens, owner, torch.arange(width).expand(len(documents), -1)


def pack(documents):
    owner = torch.cat([torch.full((len(document),), row) for row, document in enumerate(documents)])[None]
    is_new = F.pad(owner[:, 1:] != owner[:, :-1], (1, 0) if CLEAN else (0, 1))
    place = torch.arange(owner.size(1))[None]
    begin = torch.where(is_new, place, 0).cummax(1).values
    return torch.cat(documents)[None], owner, place - begin  # WRONG


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.position = nn.Embedding(30, 16), nn.Embedding(30, 16)
        self.qkv, self.head = nn.Linear(16, 48, bias=False), nn.Linear(16, 30)

    def forward(self, tokens, owner, position):
        x = self.token(tokens) + self.position(position)
        mask = torch.ones(2 * [tokens.size(1)], dtype=torch.bool).tril() & (owner[:, :, None] == owner[:, None])
        return self.head(x + F.scaled_dot_product_attention(*self.qkv(x).chunk(3, -1), attn_mask=mask))


torch.manual_seed(0)
model = Decoder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
lengths = torch.Generator().manual_seed(1)
for _ in range(5):
    documents = [torch.randint(30, (int(n),)) for n in torch.randint(5, 16, (8,), generator=lengths)]
    tokens, owner, position = (pack if "packed" in sys.argv else pad)(documents)
    counts = (owner[:, 1:] == owner[:, :-1]) & (owner[:, 1:] >= 0)
    loss = F.cross_entropy(model(tokens, owner, position)[:, :-1][counts], tokens[:, 1:][counts])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
