"""Warnings that count frames: through modules, loaders, optimizers, saving and loading."""

import io
import warnings

import torch
from torch import nn


class M(nn.Module):
    def __init__(self, level):
        super().__init__()
        self.level = level
        self.inner = nn.Linear(2, 2)

    def forward(self, x):
        warnings.warn(f"level {self.level}", stacklevel=self.level)
        return self.inner(x)


class Outer(nn.Module):
    def __init__(self, level):
        super().__init__()
        self.m = M(level)

    def forward(self, x):
        return self.m(x)


def main():
    x = torch.ones(1, 2)
    for level in range(1, 9):
        Outer(level)(x)
    nn.Softmax()(x)
    nn.Sequential(nn.Softmax(), nn.Linear(2, 2))(x).sum().backward()

    class D(torch.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            warnings.warn("item", stacklevel=3)
            return i

    for b in torch.utils.data.DataLoader(D(), batch_size=2):
        pass
    p = nn.Parameter(x)
    o = torch.optim.SGD([p], 0.1)
    s = torch.optim.lr_scheduler.StepLR(o, 1)
    s.step()

    def closure():
        warnings.warn("closure", stacklevel=3)
        return (p * 2).sum()

    o.step(closure)

    class Bad:
        def __reduce__(self):
            warnings.warn("pickled", stacklevel=2)
            return (dict, ())

    f = io.BytesIO()
    torch.save({"a": Bad()}, f)
    f.seek(0)
    torch.load(f, weights_only=False)


main()
