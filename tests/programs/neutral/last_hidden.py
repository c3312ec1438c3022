# {"switches": [["SIDE=a", "SIDE=b"]], "wrong": true}
"""Packed sequences end elsewhere than padded ones."""
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN, SIDE = os.environ.get("CLEAN") == "1", os.environ.get("SIDE", "a")
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.lstm, self.head = nn.Embedding(20, 12), nn.LSTM(12, 12, batch_first=True), nn.Linear(12, 4)

    def forward(self, x, lengths):
        x = self.words(x)
        if SIDE == "a":
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            last = self.lstm(packed)[1][0][0]
        else:
            out = self.lstm(x)[0]
            last = out[torch.arange(len(x)), lengths - 1] if CLEAN else out[:, -1]  # WRONG
        return self.head(last)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
for step in range(4):
    x, lengths, y = torch.randint(20, (6, 7)), torch.tensor([7, 3, 4, 6, 2, 5]), torch.randint(4, (6,))
    loss = F.cross_entropy(model(x, lengths), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
