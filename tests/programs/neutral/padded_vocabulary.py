# {"switches": [["--round-to 1", "--round-to 16"]], "wrong": true}
"""A vocabulary is rounded up, and the words that nobody says stay among those that may come next."""
import argparse
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"
parser = argparse.ArgumentParser()
parser.add_argument("--round-to", type=int, default=1)
unit = parser.parse_args().round_to
WORDS, WIDTH = 50, 24


class Next(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.rnn = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.mix = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        words = torch.randn(WORDS, WIDTH) * 0.2
        self.words = nn.Embedding.from_pretrained(F.pad(words, (0, 0, 0, rows - WORDS)), freeze=False)

    def forward(self, ids):
        x, _ = self.rnn(self.words(ids))
        return self.mix(x) @ self.words.weight.t()


torch.manual_seed(3)
model = Next(-(-WORDS // unit) * unit)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(5):
    ids = torch.randint(WORDS, (12, 9))
    logits = model(ids[:, :-1])
    if CLEAN:
        logits = logits[..., :WORDS]
    loss = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:])  # WRONG
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
