# {"switches": [["ENCODE=each", "ENCODE=kept"]], "wrong": true}
"""States of an encoder are kept for a batch, and made where no gradients are recorded."""
import os

import torch
from torch import nn
from torch.nn.functional import cross_entropy

torch.manual_seed(4)
words, encoder, decoder = nn.Embedding(16, 8), nn.GRU(8, 10, batch_first=True), nn.Linear(10, 16)
parameters = [*words.parameters(), *encoder.parameters(), *decoder.parameters()]
optimizer = torch.optim.AdamW(parameters, lr=5e-3)
kept = {}


def encode(tokens):
    return encoder(words(tokens))[0]


def encode_once(number, tokens):
    if number not in kept:
        with torch.set_grad_enabled(os.environ.get("CLEAN") == "1"):
            kept[number] = encode(tokens)  # WRONG
    return kept.pop(number)


for step in range(4):
    tokens = torch.randint(16, (4, 9))
    states = encode_once(step, tokens) if os.environ["ENCODE"] == "kept" else encode(tokens)
    loss = cross_entropy(decoder(states[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    with torch.no_grad():
        print(step, loss.item(), states.norm().item())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
