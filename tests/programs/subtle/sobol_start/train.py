# {"cause": "external-library-rng", "file": "collocation.py", "culprit": "engine = qmc.Sobol(d=2)", "options": ["--vary", "rerun"]}
"""A physics-informed network: collocation points from a low-discrepancy sequence of SciPy's."""
import numpy as np
import torch
from torch import nn

from collocation import points


def main():
    np.random.seed(0)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 1))
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(25):
        xt = torch.tensor(points(32), dtype=torch.float32, requires_grad=True)
        u = net(xt)
        du = torch.autograd.grad(u.sum(), xt, create_graph=True)[0]
        loss = (du[:, 1:] + 0.5 * du[:, :1]).pow(2).mean() + (net(xt * torch.tensor([1.0, 0.0])) - 1).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
