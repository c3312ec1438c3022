"""Train a small character-level GPT on the help texts that ship with Python."""

import argparse
import hashlib
import random
from pydoc_data.topics import topics

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        batch, time, dim = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, time, 3, self.heads, dim // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, time, dim))
        return x + self.mlp(self.norm2(x))


class CharGPT(nn.Module):
    def __init__(self, vocabulary, context=64, dim=64, heads=4, layers=2):
        super().__init__()
        self.context = context
        self.token = nn.Embedding(vocabulary, dim)
        self.position = nn.Embedding(context, dim)
        self.blocks = nn.Sequential(*[Block(dim, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocabulary)

    def forward(self, tokens):
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))

    @torch.no_grad()
    def sample(self, tokens, length):
        for _ in range(length):
            logits = self(tokens[:, -self.context :])[:, -1]
            tokens = torch.cat([tokens, torch.multinomial(logits.softmax(-1), 1)], dim=1)
        return tokens


def get_batch(data, batch_size, context):
    starts = torch.randint(len(data) - context - 1, (batch_size,)).tolist()
    chunks = torch.stack([data[start : start + context + 1] for start in starts])
    return chunks[:, :-1], chunks[:, 1:]


def digest(model):
    """The first 16 hex digits of the SHA-256 of the model's weights."""
    sha = hashlib.sha256()
    for tensor in model.state_dict().values():
        sha.update(tensor.numpy().tobytes())
    return sha.hexdigest()[:16]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40, help="steps per epoch")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)

    text = "\n".join(topics[name] for name in sorted(topics))[:200_000]
    chars = sorted(set(text))
    index_of = {char: index for index, char in enumerate(chars)}
    data = torch.tensor([index_of[char] for char in text])
    train, test = data[:180_000], data[180_000:]

    model = CharGPT(len(chars))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for epoch in range(1, args.epochs + 1):
        total = 0.0
        for _ in range(args.steps):
            inputs, targets = get_batch(train, args.batch_size, model.context)
            loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        with torch.no_grad():
            inputs, targets = get_batch(test, 64, model.context)
            test_loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()).item()
        print(f"epoch {epoch}: loss {total / args.steps:.4f}, test loss {test_loss:.4f}")

    tokens = model.sample(data[:1].view(1, 1), length=60)[0].tolist()
    print("sample:", ascii("".join(chars[token] for token in tokens)))
    print(digest(model))


if __name__ == "__main__":
    main()
