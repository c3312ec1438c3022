"""Does not parse."""

import torch

print(torch.ones(2).sum()

for step in range(3)
    print(step)
