"""Megatron-style tensor parallelism written by hand (2-way) with data parallelism around it (2-way):
column/row parallel linear layers, vocab-parallel embedding and cross entropy, overlapped gradient all-reduce."""
import os
import time
from collections import defaultdict
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

TP, HIDDEN, FFN, HEADS, VOCAB, SEQ, LAYERS, STEPS, SEED = 2, 32, 64, 4, 96, 16, 2, 12, 4321
GROUPS = {}
def initialize_model_parallel():
    rank, world = dist.get_rank(), dist.get_world_size()
    for name, members in (("tp", [range(i, i + TP) for i in range(0, world, TP)]),
                          ("dp", [range(i, world, TP) for i in range(TP)])):
        for ranks in members:  # every rank makes every group, in the same order
            g = dist.new_group(list(ranks), backend="gloo")
            GROUPS.update({name: g} if rank in ranks else {})

class Timers:
    def __init__(self):
        self.t = defaultdict(float)
    @contextmanager
    def __call__(self, name):
        began = time.perf_counter()
        yield
        self.t[name] += time.perf_counter() - began
    def text(self, n):
        return " | ".join(f"{k}: {1e3 * v / n:.2f} ms" for k, v in self.t.items())

timers, polls = Timers(), [0]
class ReduceFromTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        dist.all_reduce(x := x.contiguous().clone(), group=GROUPS["tp"])
        return x
    @staticmethod
    def backward(ctx, g):
        return g

class ColumnParallelMatmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w.t()
    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        gx = (g @ w).contiguous()  # its all-reduce overlaps the weight gradient's product
        work = dist.all_reduce(gx, group=GROUPS["tp"], async_op=True)
        gw = g.flatten(0, 1).t() @ x.flatten(0, 1)
        while not work.is_completed():  # takes a different number of turns every time
            polls[0] += 1
            time.sleep(1e-5)
        work.wait()
        return gx, gw

class VocabParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target):
        part, top = logits.size(-1), logits.max(-1).values
        lo = dist.get_rank(GROUPS["tp"]) * part
        dist.all_reduce(top, op=dist.ReduceOp.MAX, group=GROUPS["tp"])
        e = (logits - top[..., None]).exp()
        mine = (target >= lo) & (target < lo + part)
        idx = (target - lo).clamp(0, part - 1)
        picked = torch.where(mine, (logits - top[..., None]).gather(-1, idx[..., None])[..., 0], 0.0)
        both = torch.stack([e.sum(-1), picked])
        dist.all_reduce(both, group=GROUPS["tp"])
        ctx.save_for_backward(e / both[0][..., None], mine, idx)
        return both[0].log() - both[1]
    @staticmethod
    def backward(ctx, g):
        p, mine, idx = ctx.saved_tensors
        return p.scatter_add(-1, idx[..., None], -mine[..., None].float()) * g[..., None], None

def shard(full, dim):
    return nn.Parameter(full.chunk(TP, dim)[dist.get_rank(GROUPS["tp"])].clone())

class Layer(nn.Module):
    def __init__(self, gen):
        super().__init__()
        w = lambda o, i: torch.randn(o, i, generator=gen) * 0.08  # the full weight, alike everywhere
        self.ln1, self.ln2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.q, self.k, self.v = (shard(w(HIDDEN, HIDDEN), 0) for _ in range(3))
        self.o, self.up, self.down = shard(w(HIDDEN, HIDDEN), 1), shard(w(FFN, HIDDEN), 0), shard(w(HIDDEN, FFN), 1)
    def forward(self, x):
        h, (b, s, _) = self.ln1(x), x.shape
        q, k, v = (ColumnParallelMatmul.apply(h, w).view(b, s, HEADS // TP, -1).transpose(1, 2)
                   for w in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, s, -1)
        x = x + ReduceFromTP.apply(a @ self.o.t())
        h = F.gelu(ColumnParallelMatmul.apply(self.ln2(x), self.up))
        return x + ReduceFromTP.apply(h @ self.down.t())

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        gen = torch.Generator().manual_seed(SEED)
        self.embed, self.norm = shard(torch.randn(VOCAB, HIDDEN, generator=gen) * 0.1, 0), nn.LayerNorm(HIDDEN)
        self.layers = nn.ModuleList(Layer(gen) for _ in range(LAYERS))
    def forward(self, tok, target):
        lo = dist.get_rank(GROUPS["tp"]) * self.embed.size(0)
        mine = (tok >= lo) & (tok < lo + self.embed.size(0))
        x = ReduceFromTP.apply(F.embedding((tok - lo).clamp(0, self.embed.size(0) - 1), self.embed) * mine[..., None])
        for layer in self.layers:
            x = layer(x)
        return VocabParallelCrossEntropy.apply(ColumnParallelMatmul.apply(self.norm(x), self.embed), target).mean()
@torch.no_grad()
def adam(p, g, m, v, t, lr=4e-3, b1=0.9, b2=0.95):
    m.lerp_(g, 1 - b1), v.lerp_(g * g, 1 - b2)
    p.addcdiv_(m / (1 - b1 ** t), (v / (1 - b2 ** t)).sqrt() + 1e-8, value=-lr)

def main():
    dist.init_process_group("gloo")
    initialize_model_parallel()
    model, rank, dp = Model(), dist.get_rank(), dist.get_rank(GROUPS["dp"])
    main_grad = {id(p): torch.zeros_like(p) for p in model.parameters()}  # keyed by id(), never ordered by it
    state = {id(p): (torch.zeros_like(p), torch.zeros_like(p)) for p in model.parameters()}
    gen = torch.Generator().manual_seed(SEED + 1 + dp)
    for step in range(STEPS):
        base = torch.randint(0, VOCAB, (4, 1), generator=gen)
        seq = (base + torch.arange(SEQ + 1) * torch.randint(1, 4, (4, 1), generator=gen)) % VOCAB
        with timers("forward-backward"):
            loss = model(seq[:, :-1], seq[:, 1:])
            loss.backward()
        with timers("grad-sync"):
            works = [dist.all_reduce(main_grad[id(p)].copy_(p.grad), group=GROUPS["dp"], async_op=True) for p in model.parameters()]
            for p, w in zip(model.parameters(), works):
                w.wait()
                adam(p, main_grad[id(p)] / 2, *state[id(p)], step + 1)
                p.grad = None
        avg = loss.detach().clone()
        dist.all_reduce(avg, group=GROUPS["dp"])
        if rank == 0:
            print(f" [{time.ctime()}] iteration {step + 1:3d}/{STEPS} | lm loss: {avg.item() / 2!r}", flush=True)
    names = {n.rsplit(".", 1)[-1] for n, _ in model.named_parameters()}  # a set of str: sorted before use
    sums = [(n, sum(p.double().norm().item() for m, p in model.named_parameters() if m.endswith(n))) for n in sorted(names)]
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, sums)
    if rank == 0:
        print("\n".join(f"norms rank {r}: " + " ".join(f"{n}={v!r}" for n, v in s) for r, s in enumerate(every)))
        print(f"time (pid {os.getpid()}): {timers.text(STEPS)}, {polls[0]} polls in {1e3 * timers.t['grad-sync']:.1f} ms", flush=True)
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
