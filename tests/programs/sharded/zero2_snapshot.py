"""ZeRO-2 by hand, DeepSpeed-like: gradients are reduce-scattered bucket by bucket while backward runs, each
rank updates its shard with Adam, parameters are all-gathered. An elastic trainer around it writes
snapshots from a thread; half way it throws everything away and resumes from the newest snapshot."""
import logging
import os
import queue
import re
import shutil
import tempfile
import threading
import time

import torch
import torch.distributed as dist
import torch.nn as nn

logging.basicConfig(level=logging.INFO, format="[%(asctime)s] [%(levelname)s] [%(process)d] %(message)s")
log = logging.getLogger("zero")
SEED, EPOCHS, STEPS_PER_EPOCH, BATCH, BUCKET = 77, 4, 5, 8, 1500

class Bucket:
    """A run of parameters that share one flat buffer, padded to a multiple of the number of ranks."""
    def __init__(self, params, rank, world):
        self.params, self.n = params, sum(p.numel() for p in params)
        self.padded = (self.n + world - 1) // world * world
        self.size, self.left = self.padded // world, len(params)
        flat = torch.cat([p.detach().flatten() for p in params] + [torch.zeros(self.padded - self.n)])
        self.master = flat[rank * self.size:(rank + 1) * self.size].clone()
        self.m, self.v = torch.zeros(self.size), torch.zeros(self.size)
        self.grad = torch.empty(self.size)  # only ever read after its reduce-scatter has landed

class Zero2:
    def __init__(self, model, lr=5e-3, betas=(0.9, 0.95), clip=1.0):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.lr, self.betas, self.clip, self.t, self.buckets = lr, betas, clip, 0, []
        group, last = [], next(model.parameters())
        for p in reversed(list(model.parameters())):
            group.append(p)
            if p is last or sum(q.numel() for q in group) >= BUCKET:
                self.buckets.append(Bucket(group, self.rank, self.world))
                group = []
        self.of = {id(p): b for b in self.buckets for p in b.params}
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(self.on_grad)
        self.inbox, self.all_landed = queue.Queue(), threading.Event()
        threading.Thread(target=self.waiter, daemon=True, name="zero-waiter").start()
    def on_grad(self, p):
        b = self.of[id(p)]
        b.left -= 1
        if b.left == 0:  # the buckets fill in the same order everywhere: the model is one chain
            flat = torch.empty(b.padded)
            torch.cat([q.grad.flatten() for q in b.params], out=flat[:b.n])
            flat[b.n:] = 0
            work = dist.reduce_scatter_tensor(b.grad, flat, async_op=True)
            self.inbox.put((work, b, flat))
            for q in b.params:
                q.grad = None
    def waiter(self):
        landed = 0
        while True:
            work, b, _flat = self.inbox.get()
            work.wait()
            b.grad.div_(self.world)
            landed += 1
            if landed == len(self.buckets):
                landed = 0
                self.all_landed.set()
    @torch.no_grad()
    def step(self):
        self.all_landed.wait()
        self.all_landed.clear()
        sq = torch.stack([b.grad.square().sum() for b in self.buckets]).sum()
        dist.all_reduce(sq)
        norm, pending, (b1, b2) = sq.sqrt(), [], self.betas
        self.t += 1
        for b in self.buckets:
            g = b.grad * (self.clip / norm).clamp(max=1.0)
            b.m.lerp_(g, 1 - b1)
            b.v.lerp_(g * g, 1 - b2)
            b.master.addcdiv_(b.m / (1 - b1 ** self.t), (b.v / (1 - b2 ** self.t)).sqrt() + 1e-8, value=-self.lr)
            pending.append(self.gather(b))
        for item in pending:
            self.scatter_back(*item)
        return norm.item()
    def gather(self, b):
        full = torch.empty(b.padded)
        return b, full, dist.all_gather_into_tensor(full, b.master, async_op=True)
    @torch.no_grad()
    def scatter_back(self, b, full, work):
        work.wait()
        b.left = len(b.params)
        for p, piece in zip(b.params, full[:b.n].split([p.numel() for p in b.params])):
            p.copy_(piece.view_as(p))
    def load(self, t, shards):
        self.t = t
        for b, (w, m, v) in zip(self.buckets, shards):
            b.master.copy_(w), b.m.copy_(m), b.v.copy_(v)
            self.scatter_back(*self.gather(b))

class Trainer:
    def __init__(self, folder):
        torch.manual_seed(SEED)
        self.model = nn.Sequential(nn.Linear(12, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))
        self.opt, self.folder, self.rank, self.first = Zero2(self.model), folder, dist.get_rank(), 0
        found = [int(m[1]) for f in os.listdir(folder) if (m := re.fullmatch(rf"epoch(\d+)\.rank{self.rank}\.pt", f))]
        if found:
            self.opt.load(*torch.load(os.path.join(folder, f"epoch{max(found)}.rank{self.rank}.pt")))
            self.first = max(found) + 1
            log.info("rank %d resumes at epoch %d from %s", self.rank, self.first, folder)
    def save(self, epoch):
        state = (self.opt.t, [(b.master.clone(), b.m.clone(), b.v.clone()) for b in self.opt.buckets])
        path = os.path.join(self.folder, f"epoch{epoch}.rank{self.rank}.pt")

        def write():
            partial = f"{path}.{os.getpid()}.{time.time_ns()}"
            torch.save(state, partial)
            os.replace(partial, path)
        self.saver = threading.Thread(target=write)
        self.saver.start()
    def run(self, last, history):
        for epoch in range(self.first, last):
            gen, t0 = torch.Generator().manual_seed(SEED + 1000 * epoch + self.rank), time.time()
            for _ in range(STEPS_PER_EPOCH):
                x = torch.randn(BATCH, 12, generator=gen)
                loss = (self.model(x) - x[:, :4].sin().sum(1, keepdim=True)).square().mean()
                loss.backward()
                norm = self.opt.step()
                total = loss.detach().clone()
                dist.all_reduce(total)
                history.append((epoch, total.item() / self.opt.world, norm))
            if epoch > self.first:
                self.saver.join()
            self.save(epoch)
            if self.rank == 0:
                log.info("epoch %d finished after %.1f ms", epoch, 1e3 * (time.time() - t0))
        self.saver.join()
        dist.barrier()

if __name__ == "__main__":
    dist.init_process_group("gloo")
    box = [tempfile.mkdtemp(prefix="zero2_")] if dist.get_rank() == 0 else [None]
    dist.broadcast_object_list(box)
    history = []
    for stop in (EPOCHS // 2, EPOCHS):  # the second trainer is the "restarted job"
        Trainer(box[0]).run(stop, history)
    if dist.get_rank() == 0:
        for i, (epoch, loss, norm) in enumerate(history):
            print(f"epoch {epoch} step {i}: loss={loss!r} norm={norm!r}")
        shutil.rmtree(box[0], ignore_errors=True)
    dist.destroy_process_group()
