"""FSDP2 pre-training of a small llama-like transformer, laid out like a torchtitan trainer:
config dataclasses, meta-device init, a prefetching data loader, asynchronous DCP checkpoints."""
import logging
import os
import queue
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
logger = logging.getLogger("titan")

@dataclass
class ModelArgs:
    dim: int = 32
    n_layers: int = 2
    n_heads: int = 4
    vocab_size: int = 128
    seq_len: int = 24

@dataclass
class JobConfig:
    model: ModelArgs = field(default_factory=ModelArgs)
    steps: int = 16
    batch_size: int = 4
    lr: float = 3e-3
    ckpt_every: int = 6
    log_seconds: float = 0.1
    seed: int = 1234

class Block(nn.Module):
    def __init__(self, a: ModelArgs):
        super().__init__()
        self.h = a.n_heads
        self.n1, self.n2 = nn.RMSNorm(a.dim), nn.RMSNorm(a.dim)
        self.qkv, self.wo = nn.Linear(a.dim, 3 * a.dim, bias=False), nn.Linear(a.dim, a.dim, bias=False)
        self.w1, self.w2 = nn.Linear(a.dim, 4 * a.dim, bias=False), nn.Linear(4 * a.dim, a.dim, bias=False)
    def forward(self, x, pos):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x) + pos).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.wo(y.transpose(1, 2).reshape(b, t, d))
        return x + self.w2(F.silu(self.w1(self.n2(x))))

class Transformer(nn.Module):
    def __init__(self, a: ModelArgs):
        super().__init__()
        self.a, self.emb = a, nn.Embedding(a.vocab_size, a.dim)
        self.layers = nn.ModuleList(Block(a) for _ in range(a.n_layers))
        self.norm, self.out = nn.RMSNorm(a.dim), nn.Linear(a.dim, a.vocab_size, bias=False)
        self.register_buffer("pos", torch.empty(a.seq_len, a.dim), persistent=False)
    @torch.no_grad()
    def init_weights(self):
        for p in self.parameters():
            nn.init.ones_(p) if p.ndim == 1 else nn.init.normal_(p, std=0.05)
        self.pos.copy_((torch.arange(self.a.seq_len)[:, None] / 100 ** (torch.arange(self.a.dim) / self.a.dim)).sin())
    def forward(self, tokens):
        x = self.emb(tokens)
        for layer in self.layers:
            x = layer(x, self.pos)
        return self.out(self.norm(x))

class PrefetchLoader(threading.Thread):
    def __init__(self, cfg, rank):
        super().__init__(daemon=True, name="prefetch")
        self.cfg, self.q = cfg, queue.Queue(maxsize=3)
        self.gen = torch.Generator().manual_seed(cfg.seed * 100 + rank)
    def run(self):
        m = self.cfg.model
        for _ in range(self.cfg.steps):
            start = torch.randint(0, m.vocab_size, (self.cfg.batch_size, 1), generator=self.gen)
            stride = torch.randint(1, 5, (self.cfg.batch_size, 1), generator=self.gen)
            self.q.put((start + stride * torch.arange(m.seq_len + 1)) % m.vocab_size)

class Trainer:
    def __init__(self, cfg: JobConfig):
        self.cfg, self.rank, self.world = cfg, dist.get_rank(), dist.get_world_size()
        mesh = init_device_mesh("cpu", (self.world,), mesh_dim_names=("dp",))
        with torch.device("meta"):
            self.model = Transformer(cfg.model)
        for module in (*self.model.layers, self.model):
            fully_shard(module, mesh=mesh)
        self.model.to_empty(device="cpu")
        torch.manual_seed(cfg.seed + self.rank)
        self.model.init_weights()
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr)
        self.ckpt_pg, self.pending = dist.new_group(backend="gloo"), None
        box = [tempfile.mkdtemp(prefix="titan_") if self.rank == 0 else None]
        dist.broadcast_object_list(box)
        self.folder, self.losses = box[0], []
    def save(self, step):
        if self.pending is not None:
            self.pending.result()
        state, t0 = {k: v.detach().clone() for k, v in self.model.state_dict().items()}, time.perf_counter()
        path = os.path.join(self.folder, f"step-{step:05d}")
        self.pending = dcp.async_save(state, checkpoint_id=path, process_group=self.ckpt_pg)
        logger.info("saving %s (blocked %.1f ms)", path, 1e3 * (time.perf_counter() - t0))
    def train(self):
        loader, last = PrefetchLoader(self.cfg, self.rank), time.time()
        loader.start()
        for step in range(1, self.cfg.steps + 1):
            batch = loader.q.get()
            loss = F.cross_entropy(self.model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
            loss.backward()
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            self.opt.zero_grad()
            avg = loss.detach().clone()
            dist.all_reduce(avg)
            self.losses.append((avg.item() / self.world, norm.full_tensor().item()))
            if time.time() - last > self.cfg.log_seconds:  # log by time, not by step
                last = time.time()
                logger.info("still training, pid %d, queue holds %d", os.getpid(), loader.q.qsize())
            if step % self.cfg.ckpt_every == 0:
                self.save(step)
        self.pending.result()
    @torch.no_grad()
    def reload_and_eval(self):
        latest, state = sorted(os.listdir(self.folder))[-1], self.model.state_dict()
        dcp.load(state, checkpoint_id=os.path.join(self.folder, latest))
        self.model.load_state_dict(state)
        x = torch.arange(self.cfg.model.seq_len + 1)[None] * 3 % self.cfg.model.vocab_size
        return latest, F.cross_entropy(self.model(x[:, :-1]).flatten(0, 1), x[0, 1:]).item()

def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    dist.init_process_group("gloo")
    trainer, begin = Trainer(JobConfig()), time.time()
    trainer.train()
    name, ev = trainer.reload_and_eval()
    if trainer.rank == 0:
        for i, (loss, norm) in enumerate(trainer.losses, 1):
            print(f"step {i:3d} loss {loss!r} grad_norm {norm!r}")
        print(f"eval from {name}: {ev.hex()}")
        print(f"training took {time.time() - begin:.2f} s", flush=True)
    dist.barrier()
    if trainer.rank == 0:
        shutil.rmtree(trainer.folder, ignore_errors=True)
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
