"""Fails in a module's forward, in an operator, while another error is handled: the traceback is the program's own."""

import io
import traceback

import torch
from torch import nn


class Inner(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return torch.mm(x, torch.ones(5, 5))
        except RuntimeError as error:
            raise ValueError("shapes of another model") from error


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(2, 2), Inner())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return self.inner(x)
        finally:
            torch.zeros(3)[7:].sum()


class Odd:
    def __setstate__(self, state: object) -> None:
        raise KeyError("no such state")


kept = io.BytesIO()
odd = Odd()
odd.x = torch.ones(2)
torch.save(odd, kept)
kept.seek(0)
try:
    torch.load(kept, weights_only=False)
except KeyError as error:
    print(error, len(traceback.extract_tb(error.__traceback__)) > 1)
Outer()(torch.ones(1, 2))
