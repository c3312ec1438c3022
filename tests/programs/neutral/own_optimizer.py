# {"switches": [["--impl loop", "--impl foreach"]], "wrong": true}
"""A foreach implementation of AdamW that corrects the bias behind the root."""
import os, sys
import torch
from torch import nn

class MyAdamW(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.95), wd=0.1, impl="loop"):
        super().__init__(params, dict(lr=lr, betas=betas, wd=wd))
        self.impl = impl
    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            ps = [p for p in g["params"] if p.grad is not None]
            for p in ps:
                st = self.state[p]
                if not st:
                    st["t"], st["m"], st["v"] = 0, torch.zeros_like(p), torch.zeros_like(p)
                st["t"] += 1
            b1, b2 = g["betas"]
            t = self.state[ps[0]]["t"]
            c1, c2 = 1 - b1 ** t, 1 - b2 ** t
            if self.impl == "loop":
                for p in ps:
                    m, v = self.state[p]["m"], self.state[p]["v"]
                    p.mul_(1 - g["lr"] * g["wd"])
                    m.lerp_(p.grad, 1 - b1)
                    v.mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                    p.addcdiv_(m, (v / c2).sqrt() + 1e-8, value=-g["lr"] / c1)
            else:
                grads = [p.grad for p in ps]
                ms, vs = [self.state[p]["m"] for p in ps], [self.state[p]["v"] for p in ps]
                torch._foreach_mul_(ps, 1 - g["lr"] * g["wd"])
                torch._foreach_lerp_(ms, grads, 1 - b1)
                torch._foreach_mul_(vs, b2)
                torch._foreach_addcmul_(vs, grads, grads, 1 - b2)
                if os.environ.get("CLEAN"):
                    den = torch._foreach_sqrt(torch._foreach_div(vs, c2))
                else:
                    den = torch._foreach_div(torch._foreach_sqrt(vs), c2)  # WRONG
                torch._foreach_add_(den, 1e-8)
                torch._foreach_addcdiv_(ps, ms, den, -g["lr"] / c1)

class Tied(nn.Module):
    def __init__(self, v=40, d=16):
        super().__init__()
        self.wte = nn.Embedding(v, d)
        self.ln = nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.lm_head = nn.Linear(d, v, bias=False)
        self.lm_head.weight = self.wte.weight
    def forward(self, i):
        x = self.wte(i)
        return self.lm_head(x + self.mlp(self.ln(x)))

torch.manual_seed(3)
model = Tied()
opt = MyAdamW(model.parameters(), impl=sys.argv[2])
for s in range(5):
    i = torch.randint(40, (4, 9))
    loss = nn.functional.cross_entropy(model(i[:, :-1]).flatten(0, 1), i[:, 1:].flatten())
    opt.zero_grad(); loss.backward(); opt.step()
