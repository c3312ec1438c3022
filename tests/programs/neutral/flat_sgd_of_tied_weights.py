# {"switches": [["--sgd torch", "--sgd flat"]], "wrong": true}
"""SGD over one flat buffer takes tied weights twice: the norm that clips the gradients counts them double."""
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"
LR, MOMENTUM, MOST = 0.1, 0.9, 0.5


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.mixer = nn.Embedding(20, 16), nn.Linear(16, 16)
        self.head = nn.Linear(16, 20, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.mixer(self.embedding(tokens)).tanh())


class FlatSGD:
    def __init__(self, model):
        self.parameters = [p for _, p in model.named_parameters(remove_duplicate=CLEAN)]
        self.flat = torch.cat([p.detach().flatten() for p in self.parameters])
        self.velocity = torch.zeros_like(self.flat)
        for p, value in zip(self.parameters, self.flat.split([p.numel() for p in self.parameters])):
            p.data = value.view_as(p)

    @torch.no_grad()
    def step(self):
        gradient = torch.cat([p.grad.flatten() for p in self.parameters])  # WRONG
        gradient.mul_((MOST / (gradient.norm() + 1e-6)).clamp(max=1.0))
        self.velocity.mul_(MOMENTUM).add_(gradient)
        self.flat.add_(self.velocity, alpha=-LR)


class TorchSGD:
    def __init__(self, model):
        self.parameters = list(model.parameters())
        self.optimizer = torch.optim.SGD(self.parameters, lr=LR, momentum=MOMENTUM)

    def step(self):
        nn.utils.clip_grad_norm_(self.parameters, MOST)
        self.optimizer.step()


def main():
    torch.manual_seed(0)
    model = LanguageModel()
    optimizer = (FlatSGD if "flat" in sys.argv else TorchSGD)(model)
    for _ in range(5):
        tokens = torch.randint(20, (8, 7))
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        model.zero_grad()
        loss.backward()
        optimizer.step()


main()
