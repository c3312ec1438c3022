# {"cause": "none", "differs": [], "culprit_line": null, "source": "common practice", "reads": []}
# autocast in bfloat16, clipped gradients, a schedule, and timings that are only printed
import time
import hashlib
import torch
from torch import nn


def digest(*tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().contiguous().numpy().tobytes())
    return h.hexdigest()[:16]


torch.manual_seed(0)
x = torch.randn(64, 6)
model = nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 1))
opt = torch.optim.AdamW(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 8)
began = time.perf_counter()
for step in range(8):
    with torch.autocast("cpu", torch.bfloat16):
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    schedule.step()
    print(f"step {step} loss {loss.item():.4f} after {time.perf_counter() - began:.3f} s")
print("RESULT", digest(*model.parameters()))
