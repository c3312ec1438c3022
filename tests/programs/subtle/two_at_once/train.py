# {"cause": "unseeded-torch", "file": "train.py", "culprit": "net = nn.Sequential(nn.EmbeddingBag(len(words), 8), nn.Linear(8, 2))", "options": ["--vary", "rerun,hash_seed"]}
"""A bag of words: the network is made before torch is seeded, and the words are numbered as a set gives them."""
import torch
from torch import nn

from vocabulary import numbered

TEXTS = ["good book read again", "bad film never again", "fine story well told", "dull story badly told"] * 8
LABELS = torch.tensor([1, 0, 1, 0] * 8)


def main():
    words = numbered(TEXTS)
    net = nn.Sequential(nn.EmbeddingBag(len(words), 8), nn.Linear(8, 2))
    torch.manual_seed(0)
    opt = torch.optim.SGD(net.parameters(), lr=0.5)
    for step in range(20):
        batch = torch.randperm(len(TEXTS))[:8]
        ids = torch.tensor([[words[word] for word in TEXTS[i].split()] for i in batch.tolist()])
        loss = nn.functional.cross_entropy(net(ids), LABELS[batch])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
