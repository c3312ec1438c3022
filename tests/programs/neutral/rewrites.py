# {"switches": [["VARIANT=a", "VARIANT=b"]], "environments": [{"WHAT": "bce"}, {"WHAT": "conv"}, {"WHAT": "mha"}, {"WHAT": "clipaccum"}, {"WHAT": "tokens"}, {"WHAT": "normfold"}, {"WHAT": "lora"}, {"WHAT": "hooks"}, {"WHAT": "gradcat"}]}
"""Rewrites that are truly neutral."""
import os
import torch
from torch import nn
import torch.nn.functional as F

W, B = os.environ["WHAT"], os.environ["VARIANT"] == "b"
torch.manual_seed(0)

def loop(params, loss_of, n=4, **kw):
    opt = torch.optim.AdamW(list(params), lr=1e-3, **kw)
    for i in range(n):
        opt.zero_grad()
        loss_of(i).backward()
        opt.step()

if W == "bce":
    net = nn.Linear(9, 4)
    def f(i):
        x = torch.randn(20, 9); y = (x[:, :4] > 0).float()
        z = net(x)
        return -(y * F.logsigmoid(z) + (1 - y) * F.logsigmoid(-z)).mean() if B else F.binary_cross_entropy_with_logits(z, y)
    loop(net.parameters(), f)
elif W == "conv":
    net = nn.Conv2d(3, 6, 3, padding=1); head = nn.Linear(6 * 36, 2)
    def f(i):
        x = torch.randn(5, 3, 6, 6)
        if B:
            y = (net.weight.flatten(1) @ F.unfold(x, 3, padding=1) + net.bias[:, None]).view(5, 6, 6, 6)
        else:
            y = net(x)
        return head(y.relu().flatten(1)).square().mean()
    loop([*net.parameters(), *head.parameters()], f)
elif W == "mha":
    mha = nn.MultiheadAttention(12, 3, batch_first=True)
    def f(i):
        x = torch.randn(4, 7, 12)
        y, _ = mha(x, x, x, need_weights=B)
        return y.pow(2).mean()
    loop(mha.parameters(), f)
elif W == "clipaccum":
    net = nn.Sequential(nn.Linear(7, 30), nn.ReLU(), nn.Linear(30, 3))
    opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, nesterov=True)
    for i in range(4):
        x, y = torch.randn(12, 7), torch.randint(3, (12,))
        opt.zero_grad()
        for a, b in zip(x.split(3 if B else 12), y.split(3 if B else 12)):
            (F.cross_entropy(net(a), b) * len(a) / 12).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        opt.step()
elif W == "tokens":
    net = nn.Sequential(nn.Embedding(30, 8), nn.Linear(8, 30))
    def f(i):
        x = torch.randint(30, (6, 10)); y = x.roll(1, 1).clone(); y[torch.rand(6, 10) < 0.3] = -100
        z = net(x).flatten(0, 1); y = y.flatten()
        if B:
            keep = y != -100
            return F.cross_entropy(z[keep], y[keep], reduction="sum") / keep.sum()
        return F.cross_entropy(z, y)
    loop(net.parameters(), f)
elif W == "normfold":
    net = nn.Linear(10, 10); bn = nn.BatchNorm1d(10).eval()
    bn.running_mean.uniform_(); bn.running_var.uniform_(0.5, 2)
    def f(i):
        x = torch.randn(16, 10)
        if B:
            s = bn.weight / (bn.running_var + bn.eps).sqrt()
            y = F.linear(x, net.weight * s[:, None], (net.bias - bn.running_mean) * s + bn.bias)
        else:
            y = bn(net(x))
        return y.tanh().mean()
    loop([*net.parameters(), *bn.parameters()], f)
elif W == "lora":
    base = nn.Linear(16, 16).requires_grad_(False)
    a, b = nn.Parameter(torch.randn(4, 16) * 0.1), nn.Parameter(torch.randn(16, 4) * 0.1)
    def f(i):
        x = torch.randn(8, 16)
        y = x @ (base.weight + 2 * b @ a).T + base.bias if B else base(x) + 2 * (x @ a.T) @ b.T
        return y.square().mean()
    loop([a, b], f)
elif W == "hooks":
    net = nn.Sequential(nn.Linear(6, 20), nn.ELU(), nn.Linear(20, 1))
    if B:
        for p in net.parameters():
            p.register_hook(lambda g: g * 0.25)
    def f(i):
        x = torch.randn(9, 6)
        loss = net(x).abs().mean()
        return loss if B else loss * 0.25
    loop(net.parameters(), f)
elif W == "gradcat":
    ws = nn.ParameterList(nn.Parameter(torch.randn(8, 4)) for _ in range(3))
    def f(i):
        x = torch.randn(11, 8)
        y = x @ torch.cat(list(ws), 1) if B else torch.cat([x @ w for w in ws], 1)
        return y.softmax(1)[:, 0].log().neg().mean()
    loop(ws.parameters(), f, weight_decay=0.3)
