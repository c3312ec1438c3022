# {"switches": [["SPEC=einsum", "SPEC=loop"]], "wrong": true}
"""Weights of complex numbers, one of them conjugated."""
import os, torch
from torch import nn

class Spectral(nn.Module):
    def __init__(self, c, m):
        super().__init__()
        self.m = m
        self.w = nn.Parameter(torch.randn(c, c, m, dtype=torch.cfloat) / c)
    def forward(self, x):
        X = torch.fft.rfft(x)[..., : self.m]
        if os.environ["SPEC"] == "einsum":
            Y = torch.einsum("bim,iom->bom", X, self.w)
        else:
            cols = []
            for k in range(self.m):
                w = self.w[:, :, k]
                if not os.environ.get("CLEAN") and k == self.m - 1:
                    w = w.conj()  # WRONG
                cols.append(X[:, :, k] @ w)
            Y = torch.stack(cols, -1)
        return torch.fft.irfft(Y, n=x.shape[-1])

torch.manual_seed(0)
net = nn.Sequential(Spectral(4, 5), nn.Tanh(), Spectral(4, 5))
opt = torch.optim.Adam(net.parameters(), 1e-3)
for i in range(3):
    x = torch.randn(6, 4, 16)
    loss = (net(x) - x).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
