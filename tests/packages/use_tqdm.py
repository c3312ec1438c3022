import sys

import torch
from tqdm.auto import tqdm, trange

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(16, 4)
bar = tqdm(range(6), desc="train", file=sys.stdout, bar_format="{desc} {n_fmt}/{total_fmt}{postfix}", mininterval=0)
for _ in bar:
    optimizer.zero_grad()
    loss = (model(x) - x[:, :1]).square().mean()
    loss.backward()
    optimizer.step()
    bar.set_postfix(loss=f"{loss.item():.6f}")
print(sum(trange(5, disable=True)), loss.item())
