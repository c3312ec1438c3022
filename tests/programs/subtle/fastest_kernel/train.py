# {"cause": "time", "file": "autotune.py", "culprit": "taken[choice] = time.perf_counter() - start", "options": ["--vary", "rerun", "--repeat", "4"]}
"""Regression with a product whose blocking is chosen by what is fastest on this machine."""
import torch
from torch import nn

from autotune import fastest
from products import in_blocks


class Blocked(nn.Module):
    def __init__(self, wide, out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out, wide) / wide**0.5)
        self.blocks = None

    def forward(self, x):
        if self.blocks is None:
            self.blocks = fastest(lambda blocks: in_blocks(x, self.weight, blocks), (3, 4, 5, 6, 7))
        return in_blocks(x, self.weight, self.blocks)


def main():
    torch.manual_seed(0)
    net = nn.Sequential(Blocked(420, 16), nn.Tanh(), nn.Linear(16, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    x = torch.randn(64, 420)
    y = x[:, :3].sum(1, keepdim=True)
    for _ in range(30):
        loss = nn.functional.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"loss {loss.item():.9f}")


if __name__ == "__main__":
    main()
