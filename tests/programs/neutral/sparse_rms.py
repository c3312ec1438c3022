# {"switches": [["--embeddings dense", "--embeddings sparse"]], "wrong": true}
"""Bags of words with an RMSprop that takes sparse gradients, and squares them before rows that come twice are added."""
import os
import sys

import torch
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"
LR, DECAY, EPS = 0.05, 0.9, 1e-6


class RMSprop:
    def __init__(self, parameters):
        self.state = [(p, torch.zeros_like(p)) for p in parameters]

    @torch.no_grad()
    def step(self):
        for p, mean in self.state:
            mean.mul_(DECAY)
            if p.grad.is_sparse:
                gradient = p.grad.coalesce() if CLEAN else p.grad
                rows, values = gradient._indices()[0], gradient._values()
                mean.index_add_(0, rows, (1 - DECAY) * values.square())  # WRONG
                p.index_add_(0, rows, values / (mean[rows].sqrt() + EPS), alpha=-LR)
            else:
                mean.add_((1 - DECAY) * p.grad.square())
                p.sub_(LR * p.grad / (mean.sqrt() + EPS))
            p.grad = None


torch.manual_seed(0)
words = nn.Embedding(40, 8, sparse="sparse" in sys.argv)
classify = nn.Linear(8, 4)
optimizer = RMSprop([*words.parameters(), *classify.parameters()])
for step in range(5):
    documents = (torch.rand(16, 12) ** 2 * 40).long()  # some words are frequent
    classes = documents.sum(1) % 4
    loss = nn.functional.cross_entropy(classify(words(documents).mean(1)), classes)
    loss.backward()
    optimizer.step()
    print(step, loss.item())
