"""Mixture of experts with expert parallelism: every rank owns two experts, tokens travel with
all_to_all_single (uneven splits), top-2 routing, auxiliary balance loss, heartbeats through the store."""
import argparse
import logging
import os
import random
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s.%(msecs)03d %(process)d %(message)s")
log = logging.getLogger("moe")

class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, send, recv):
        ctx.splits = send, recv
        out = torch.empty(sum(recv), x.size(1))  # wholly filled by the exchange
        dist.all_to_all_single(out, x.contiguous(), recv, send)
        return out

    @staticmethod
    def backward(ctx, g):
        send, recv = ctx.splits
        out = torch.empty(sum(send), g.size(1))
        dist.all_to_all_single(out, g.contiguous(), send, recv, async_op=True).wait()
        return out, None, None

class MoE(nn.Module):
    def __init__(self, dim, local_experts, top_k):
        super().__init__()
        self.local, self.k, self.world = local_experts, top_k, dist.get_world_size()
        self.router = nn.Linear(dim, local_experts * self.world, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim)) for _ in range(local_experts))

    def forward(self, x):
        probs = self.router(x).softmax(-1)
        weight, expert = probs.topk(self.k, dim=-1)
        flat = expert.flatten()
        order = flat.argsort(stable=True)
        counts = torch.bincount(flat, minlength=self.local * self.world)
        incoming = torch.empty_like(counts)
        dist.all_to_all_single(incoming, counts)
        send = counts.view(self.world, -1).sum(1).tolist()
        recv = incoming.view(self.world, -1).sum(1).tolist()
        tokens = AllToAll.apply(x[order // self.k], send, recv)
        which = torch.arange(self.local).repeat(self.world).repeat_interleave(incoming)
        by_expert = which.argsort(stable=True)
        pieces = tokens[by_expert].split(torch.bincount(which, minlength=self.local).tolist())
        done = torch.cat([e(p) for e, p in zip(self.experts, pieces)])[by_expert.argsort()]
        back = AllToAll.apply(done, recv, send)[order.argsort()].view(x.size(0), self.k, -1)
        load = F.one_hot(flat, counts.numel()).float().mean(0)
        self.aux, self.counts = (load * probs.mean(0)).sum() * counts.numel(), incoming
        return (back * weight[..., None]).sum(1)

class Heartbeat(threading.Thread):
    """Counts up a key of the store until stopped; how high it gets depends on the clock only."""
    def __init__(self, store, rank, period=0.01):
        super().__init__(daemon=True)
        self.store, self.key, self.period, self.over = store, f"heartbeat/{rank}", period, threading.Event()

    def run(self):
        while not self.over.wait(self.period * (0.5 + random.SystemRandom().random())):
            self.store.add(self.key, 1)

def store_get(store, key, tries=3000):
    for attempt in range(tries):
        try:
            store.wait([key], timedelta(milliseconds=20))
            return store.get(key).decode()
        except dist.DistStoreError:
            log.info("%s is not there yet (attempt %d)", key, attempt + 1)
    raise TimeoutError(key)

def gather_ragged(x):
    """All-gather tensors of different lengths; the unused tail of the buffers is never looked at."""
    sizes = [torch.empty(1, dtype=torch.long) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([x.numel()]))
    longest = max(int(s) for s in sizes)
    mine = torch.empty(longest)
    mine[:x.numel()] = x
    full = [torch.empty(longest) for _ in sizes]
    dist.all_gather(full, mine)
    return torch.cat([f[:int(s)] for f, s in zip(full, sizes)])

def main(args):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    store = dist.PrefixStore(f"moe/{os.environ['TORCHELASTIC_RUN_ID']}", store)
    beat = Heartbeat(store, rank)
    beat.start()
    if rank == 0:
        time.sleep(random.SystemRandom().uniform(0, 0.1))  # a slow start-up of the coordinator
        store.set("seed", str(args.seed))
    seed = int(store_get(store, "seed"))
    torch.manual_seed(seed)
    embed, head = nn.Embedding(args.vocab, args.dim), nn.Linear(args.dim, args.vocab)
    moe = MoE(args.dim, args.local_experts, args.top_k)
    for i, p in enumerate(moe.experts.parameters()):  # experts differ between the ranks
        nn.init.normal_(p, std=0.1, generator=torch.Generator().manual_seed(seed + 100 * rank + i))
    shared = [*embed.parameters(), *head.parameters(), *moe.router.parameters()]
    params = shared + list(moe.experts.parameters())
    gen, began, last_log = torch.Generator().manual_seed(seed + 1 + rank), time.time(), time.time()
    for step in range(args.steps):
        tok = torch.randint(0, args.vocab, (args.tokens + 3 * rank,), generator=gen)
        x = embed(tok)
        loss = F.cross_entropy(head(x + moe(x)), (tok * 7 + 3) % args.vocab)
        (loss + 0.02 * moe.aux).backward()
        works = [dist.all_reduce(p.grad, async_op=True) for p in shared]
        for w in works:
            w.wait()
        with torch.no_grad():
            for p in params:
                if p.grad is not None:  # an expert without tokens may have none
                    p.sub_(p.grad / world, alpha=args.lr)
                    p.grad = None
        stats, loads = torch.stack([loss.detach(), moe.aux.detach()]), moe.counts.view(world, -1).sum(0)
        dist.all_reduce(stats)
        loads = gather_ragged(loads[:1 + rank % 2].float())  # odd ranks report both experts
        if rank == 0:
            print(f"step={step} loss={stats[0].item().hex()} aux={stats[1].item().hex()} loads={loads.int().tolist()}")
            if time.time() - last_log > 0.05:
                last_log = time.time()
                log.info("alive, heartbeats %s", [store.add(f"heartbeat/{r}", 0) for r in range(world)])
    beat.over.set()
    beat.join()
    norm = torch.stack([p.detach().double().square().sum() for p in moe.experts.parameters()]).sum()
    every = [torch.empty((), dtype=torch.double) for _ in range(world)]
    dist.all_gather(every, norm)
    if rank == 0:
        print("expert norms " + " ".join(repr(v.sqrt().item()) for v in every))
        print(f"elapsed {time.time() - began:.3f} s, {store.add(beat.key, 0)} heartbeats", flush=True)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name, default in dict(dim=24, vocab=48, local_experts=2, top_k=2, steps=14, tokens=40, seed=11).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--lr", type=float, default=0.5)
    main(parser.parse_args())
