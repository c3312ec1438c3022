# {"switches": [["USE_CACHE=0", "USE_CACHE=1"]], "wrong": true}
"""Decoding with a cache takes the cache position for the position of left-padded rows (unslothai/unsloth#3699)."""
import math
import os

import torch
from torch import nn
from torch.nn import functional as F

USE_CACHE = os.environ.get("USE_CACHE") == "1"
CLEAN = os.environ.get("CLEAN") == "1"


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.head_dim = heads, dim // heads
        self.q_proj = nn.Linear(dim, dim)
        self.k_proj = nn.Linear(dim, dim)
        self.v_proj = nn.Linear(dim, dim)
        self.o_proj = nn.Linear(dim, dim)

    def forward(self, x, mask, cache=None):
        b, t, d = x.shape
        split = lambda y: y.view(b, t, self.heads, self.head_dim).transpose(1, 2)
        q, k, v = split(self.q_proj(x)), split(self.k_proj(x)), split(self.v_proj(x))
        if cache is not None:
            if cache:
                k = torch.cat([cache["k"], k], dim=2)
                v = torch.cat([cache["v"], v], dim=2)
            cache["k"], cache["v"] = k, v
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.head_dim)
        scores = scores + mask[:, :, -t:, : k.size(2)]
        return self.o_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))


class Decoder(nn.Module):
    def __init__(self, vocab=40, dim=32, context=32):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, dim), nn.Embedding(context, dim)
        self.ln1, self.attn = nn.LayerNorm(dim), Attention(dim, 4)
        self.ln2, self.mlp = nn.LayerNorm(dim), nn.Sequential(nn.Linear(dim, 64), nn.GELU(), nn.Linear(64, dim))
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids, attention_mask, position_ids, cache=None):
        n = attention_mask.size(1)
        causal = torch.full((n, n), -1e4).triu(1)
        padding = (1.0 - attention_mask[:, None, None, :].float()) * -1e4
        h = self.wte(ids) + self.wpe(position_ids)
        h = h + self.attn(self.ln1(h), causal + padding, cache)
        h = h + self.mlp(self.ln2(h))
        return self.head(h)


def positions_of(attention_mask):
    return (attention_mask.cumsum(-1) - 1).clamp(min=0)


@torch.no_grad()
def generate(model, ids, attention_mask, new_tokens):
    model.eval()
    cache = {} if USE_CACHE else None
    for _ in range(new_tokens):
        positions = positions_of(attention_mask)
        if USE_CACHE and cache:
            past = cache["k"].size(2)
            step_ids = ids[:, past:]
            if CLEAN:
                position_ids = positions[:, past:]
            else:
                position_ids = torch.arange(past, ids.size(1)).expand(ids.size(0), -1)  # WRONG
            logits = model(step_ids, attention_mask, position_ids, cache)[:, -1]
        else:
            logits = model(ids, attention_mask, positions, cache)[:, -1]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
        attention_mask = torch.cat([attention_mask, attention_mask.new_ones(ids.size(0), 1)], dim=1)
    model.train()
    return ids


torch.manual_seed(3)
model = Decoder()
optim = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(3):
    ids = torch.randint(40, (4, 10))
    mask = torch.ones(4, 10, dtype=torch.long)
    loss = F.cross_entropy(model(ids, mask, positions_of(mask))[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    optim.zero_grad()
    loss.backward()
    optim.step()
    pads = torch.tensor([0, 2, 4, 1])
    prompt_mask = (torch.arange(6)[None] >= pads[:, None]).long()
    print(generate(model, ids[:, :6] * prompt_mask, prompt_mask, 4).tolist())
