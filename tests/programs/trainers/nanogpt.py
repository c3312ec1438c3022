"""Train a small GPT on characters: memory-mapped data, gradient accumulation, cosine schedule, bfloat16, resume."""

import argparse
import hashlib
import math
import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional as F


@dataclass
class GPTConfig:
    block_size: int = 32
    vocab_size: int = 32
    n_layer: int = 2
    n_head: int = 2
    n_embd: int = 32


class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.n_head = config.n_head
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=False)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=False)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.n_head, -1).transpose(1, 2) for t in self.c_attn(x).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.attn = CausalSelfAttention(config)
        wide = 4 * config.n_embd
        self.mlp = nn.Sequential(nn.Linear(config.n_embd, wide), nn.GELU(), nn.Linear(wide, config.n_embd))
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.drop(self.mlp(self.ln_2(x)))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.h = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.wte.weight = self.lm_head.weight  # tied
        for name, p in self.named_parameters():
            if p.dim() >= 2:
                nn.init.normal_(p, std=0.02 / (math.sqrt(2 * config.n_layer) if "c_proj" in name else 1))

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1), device=idx.device))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))


WORDS = "the a river runs slowly under old bridges and nobody crosses them at night before dawn comes".split()


def make_text(rng, words=6_000):
    """Words with likely successors."""
    at, text = 0, []
    for jump in rng.choice([1, 2, 5], size=words, p=[0.7, 0.2, 0.1]):
        at = (at + jump) % len(WORDS)
        text.append(WORDS[at])
    return " ".join(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max-iters", type=int, default=10)
    parser.add_argument("--grad-accum", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--checkpoint", metavar="FILE", help="written at the end")
    parser.add_argument("--stop-after", type=int, metavar="N", help="end before the last iteration")
    parser.add_argument("--init-from", metavar="FILE", help="a checkpoint to go on from")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    folder = tempfile.TemporaryDirectory()

    # The data: a text as 16-bit numbers of its characters on disk.
    data = make_text(np.random.default_rng(args.seed))
    chars = sorted(set(data))
    stoi = {ch: i for i, ch in enumerate(chars)}
    ids = np.array([stoi[ch] for ch in data], dtype=np.uint16)
    for split, part in (("train", ids[: len(ids) * 9 // 10]), ("val", ids[len(ids) * 9 // 10 :])):
        part.tofile(os.path.join(folder.name, f"{split}.bin"))
    config = GPTConfig(vocab_size=len(chars))

    def get_batch(split, batch_size=8):
        data = np.memmap(os.path.join(folder.name, f"{split}.bin"), dtype=np.uint16, mode="r")
        ix = torch.randint(len(data) - config.block_size, (batch_size,))
        batch = torch.stack([torch.from_numpy(data[i : i + config.block_size + 1].astype(np.int64)) for i in ix])
        return batch[:, :-1], batch[:, 1:]

    model = GPT(config)
    decay, rest = ([p for p in model.parameters() if (p.dim() >= 2) is wide] for wide in (True, False))
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.99))
    ctx = torch.amp.autocast(device_type="cpu", dtype=torch.bfloat16)

    @torch.no_grad()
    def estimate_loss(eval_iters=2):
        model.eval()
        out = {}
        for split in ("train", "val"):
            losses = torch.zeros(eval_iters)
            for k in range(eval_iters):
                with ctx:
                    losses[k] = model(*get_batch(split))[1].item()
            out[split] = losses.mean().item()
        model.train()
        return out

    def get_lr(it, warmup=3):
        if it < warmup:
            return args.lr * (it + 1) / warmup
        ratio = (it - warmup) / max(1, args.max_iters - warmup)
        return args.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * ratio)))

    first, best, t0 = 0, float("inf"), time.time()
    if args.init_from:
        checkpoint = torch.load(args.init_from)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        first, best = checkpoint["iter"], checkpoint["best"]
        torch.set_rng_state(checkpoint["rng"])
    last = args.max_iters if args.stop_after is None else args.stop_after
    for it in range(first, last):
        for group in optimizer.param_groups:
            group["lr"] = get_lr(it)
        if it % 10 == 0:
            losses = estimate_loss()
            print(f"step {it}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
            best = min(best, losses["val"])
        for _ in range(args.grad_accum):
            X, Y = get_batch("train")
            with ctx:
                loss = model(X, Y)[1] / args.grad_accum
            loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    if args.checkpoint:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "iter": last, "best": best}
        state["rng"] = torch.get_rng_state()
        torch.save(state, args.checkpoint)
    print(f"time: {time.time() - t0:.2f} s")
    print(f"last gradient norm {norm:.4f}, best val loss {best:.4f}")
    folder.cleanup()
    print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest())


if __name__ == "__main__":
    main()
