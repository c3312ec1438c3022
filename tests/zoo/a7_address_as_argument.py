# {"cause": "object-id", "differs": ["rerun"], "culprit_line": 19, "source": "found on a public program"}
"""An address is handed to a function, which takes a number for a seed: the call is the hazard, not the function."""

import torch


def augment(x, number):
    torch.manual_seed(number % 9973)
    return x + 0.1 * torch.randn(x.shape)


torch.manual_seed(0)
layer = torch.nn.Linear(4, 4)
x = torch.randn(8, 4)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    # every object has a number
    batch = augment(x, id(layer))
    loss = layer(batch).square().mean()
    loss.backward()
    optimizer.step()
print(loss.item())
