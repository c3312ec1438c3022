# {"cause": "object-id", "differs": ["rerun"], "culprit_line": 14, "source": "found on a public program"}
"""A seed made of an address, which no variable ever holds: dropout is the first to show it, in a function above."""

import torch


def forward(layer, x):
    return torch.nn.functional.dropout(layer(x), 0.5)


torch.manual_seed(0)
layer = torch.nn.Linear(4, 4)
x = torch.randn(8, 4)
torch.manual_seed(id(layer) % 9973)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = forward(layer, x).square().mean()
    loss.backward()
    optimizer.step()
print(loss.item())
